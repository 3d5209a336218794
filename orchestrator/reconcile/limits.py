"""Times and counts that the rules use (architecture.md, Times). Seconds unless said otherwise."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Defaults are the documented ones; tests shorten none of them, they advance the clock."""

    #: Between two echoes of the leader; silence is counted in echoes.
    echo: float = 2.0
    unreachable_echoes: int = 15
    lost_echoes: int = 150
    #: A node that carries a rank of a multi-node replica: rebuilding that costs tens of minutes.
    lost_echoes_multi_node: int = 300
    #: Of the current session, after which a Full of an unknown one is believed without its Hello.
    session_silent_echoes: int = 5
    #: After the brake, one node per this becomes Lost.
    lost_pace: float = 10.0
    settling: float = 30.0
    #: A store that knows no node at all may have been emptied: agents get this long to say Hello.
    settling_unknown: float = 3.0
    #: After settling, before what cannot be adopted is named with stop.
    adoption: float = 300.0
    notice_again: float = 5.0
    not_obeying: float = 60.0
    avoid_after_excuse: float = 60.0
    avoid_after_failures: float = 600.0
    failures_on_node: int = 2
    backoff_first: float = 10.0
    backoff_most: float = 300.0
    backoff_jitter: float = 0.2
    failures_until_change: int = 8
    needs_change_every: float = 1800.0
    serving_resets: float = 600.0
    failures_of_profile: int = 3
    preparing_stall: float = 600.0
    starting_limit: float = 7500.0
    drain: float = 60.0
    stopping_alert: float = 90.0
    return_ranks: float = 60.0
    dwell: float = 60.0
    #: A `wanted` heard on the feed counts as long as a router holds the request.
    wanted_held: float = 15.0
    node_drain_replacement: float = 1800.0
    #: A card that vanished or erred stays out this long after it is seen healthy again.
    card_rest: float = 300.0
    grace: float = 30.0


DEFAULTS = Limits()
