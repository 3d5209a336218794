"""Rules that hold for every engine: environment, arguments, cards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from agent.engines.launch_plan import NodeFacts
from agent.want_state import Refusal
from orchestrator.wire.forbidden_env import is_forbidden
from orchestrator.wire.want import ShardWant

KEY_FILE = "api-key"


def arguments(shard: ShardWant) -> list[str]:
    """The profile's own arguments; the adapter's come after them, so that those win."""
    return [] if shard.profile.args is UNSET else list(shard.profile.args)


def card_environment(cards: Sequence[str]) -> dict[str, str]:
    """By UUID, never by index: the order differs between libraries and boots."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(cards), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def allowed_environment(
    shard: ShardWant, prefixes: Iterable[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """(what the profile may set, names that were dropped); whatever sent it (R72).

    ``prefixes``: variables by which this engine takes arguments, which would go round every rule here.
    """
    env = {} if shard.profile.env is UNSET else dict(shard.profile.env)
    closed = (*prefixes, "LLMGW_")
    dropped = [
        name
        for name, value in env.items()
        if is_forbidden(name) or name.upper().startswith(closed) or "\0" in value
    ]
    for name in dropped:
        del env[name]
    return env, tuple(dropped)


def key_flags(shard: ShardWant, path: str) -> tuple[list[str], dict[str, str]]:
    """(flags, files) of the engine's key: in a file, since a command line is public."""
    if not shard.engine_key:
        return [], {}
    return ["--api-key-file", path], {KEY_FILE: shard.engine_key + "\n"}


def refused_argument(args: Sequence[str], refused: Iterable[str], why: str) -> Refusal | None:
    """A refusal naming the first argument that is one of ``refused`` (also as ``--flag=value``, and
    with underscores, which engines read as dashes)."""
    known = frozenset(refused)
    for arg in args:
        flag = arg.split("=", 1)[0]
        if flag.replace("_", "-") in known:
            return Refusal("refused-argument", f"{flag} in args: {why}")
        if "\0" in arg:
            return Refusal("refused-argument", "an argument holds a NUL")
    return None


def missing_cards(shard: ShardWant, node: NodeFacts) -> Refusal | None:
    """A refusal when want names cards that are not here, or a card profile came without cards."""
    gone = [card for card in shard.cards if card not in node.cards]
    if gone:
        return Refusal("no-such-card", f"not on this node: {', '.join(gone)}")
    if shard.profile.gpu is not UNSET and not shard.cards:
        return Refusal("no-cards", f"the profile wants {shard.profile.gpu} and no card was given")
    return None
