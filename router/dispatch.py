"""From an admitted request to its end: a place, a try, perhaps another try, the answer.

Nothing here waits: each step is called by what it follows from (the front, a queue that moves, an engine's
last byte), so a request costs neither a task nor a future. A booking is given back in the step in which its
try ends, before whoever waits for the place is served.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial

import msgspec

from ext.scan import Scanned
from ext.sse import usage_of_body
from router.admit import Gate, NothingServes, Reason, Waits, Want
from router.bookings import Booking
from router.call import Call
from router.choose import RequestFacts
from router.engines import Engines
from router.error_answers import event_of
from router.errors import (
    NoEndpoint,
    Overloaded,
    RouterError,
    TimedOut,
    UpstreamBroke,
)
from router.metrics import Metrics
from router.overflow import recognise, too_long
from router.refusals import spread, to_error
from router.relay import (
    PASSED_ON,
    PASSED_ON_ANTHROPIC,
    Ending,
    Relay,
    Sending,
    request_head,
)
from router.resolve import engine_name, rewrite
from router.snapshot import Named
from router.upstream import Fault

#: Tries besides the first one; a place that could not even be reached does not count.
RETRIES = 2
_CONNECT_FAULTS = frozenset({Fault.REFUSED.value, Fault.CONNECT_TIMEOUT.value})
_BUSY = "status_429"
#: An engine of another name or key at an old address.
_FOREIGN_STATUSES = frozenset({401, 404})


class ClientGone(Exception):
    """The client left before its answer began: nobody is there to be told."""


class Dispatch:
    """Runs requests on engines. ``fed``: endpoints come from the orchestrator, so addresses may be old.

    ``finish(call, error)`` is called once for each call that ``begin`` took: with None when its answer
    has been given, else with a RouterError or ClientGone before the answer began.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engines: Engines,
        metrics: Metrics,
        wanted: Callable[[str], None],
        finish: Callable[[Call, Exception | None], None],
        *,
        fed: bool,
    ) -> None:
        self._loop = loop
        self._engines = engines
        self._metrics = metrics
        self._wanted = wanted
        self._finish = finish
        self._fed = fed
        self.relays: set[Relay] = set()
        self._stopping = False

    def begin(self, call: Call, named: Named, scanned: Scanned) -> None:
        """Take the request. What is raised here is the caller's to answer; later errors go to ``finish``."""
        gate = self._gate(named)
        gate.begun += 1
        # Only several places are told apart by it.
        digests = scanned.digests if len(gate.places) > 1 else None
        call.named = named
        call.scanned = scanned
        call.want = Want(
            RequestFacts(scanned.tokens_middle, digests[0][0] if digests else 0),
            scanned.tokens_low,
            named.adapter,
            call.exchange.began,
            _unexpected_resume,
        )
        call.exchange.on_gone(partial(self.client_left, call))
        self._ask(call, gate)

    def client_left(self, call: Call) -> None:
        """The client is gone, or the request is given up: whatever it holds is let go now."""
        if call.left:
            return
        call.left = True
        if call.relay is not None:
            call.relay.client_left()
        elif call.waiting_since is not None:
            self._leave(call)
            self._resumed(call, None)

    def stop(self) -> None:
        """Break off what runs, each client told so, and send nothing any more."""
        self._stopping = True
        for relay in tuple(self.relays):
            relay.abandon()

    # Admission.

    def _gate(self, named: Named) -> Gate:
        gate = self._engines.gates.get(named.served.entry.name)
        if gate is None:
            # The catalog changed since the name was looked up.
            raise NoEndpoint(
                f"the model {named.served.entry.name!r} has just been removed", param="model"
            )
        return gate

    def _ask(self, call: Call, gate: Gate) -> None:
        want = call.want
        assert want is not None
        outcome = gate.admit(want, self._loop.time())
        if isinstance(outcome, Booking):
            self._send(call, outcome)
        elif isinstance(outcome, Waits):
            call.waiting_since = self._loop.time()
            want.resume = partial(self._resume_soon, call)
            if outcome.held:
                self._wanted(gate.served.entry.name)
        else:
            raise to_error(outcome, gate.served.entry.name, call.exchange.client)

    def _resume_soon(self, call: Call, outcome: Booking | Reason) -> None:
        # The queue is in the middle of its own step.
        self._loop.call_soon(self._resumed, call, outcome)

    def _resumed(self, call: Call, outcome: Booking | Reason | None) -> None:
        """Its turn has come, or the reason for none; None: it left."""
        since, call.waiting_since = call.waiting_since, None
        if since is None:
            # It left after its turn had come and before it could take it.
            if isinstance(outcome, Booking):
                self._give_back(outcome)
            return
        call.queued = (call.queued or 0.0) + self._loop.time() - since
        try:
            if outcome is None:
                raise ClientGone
            if not isinstance(outcome, Booking):
                assert call.named is not None
                raise to_error(outcome, call.named.served.entry.name, call.exchange.client)
            self._send(call, outcome)
        except Exception as error:
            self._finish(call, error)

    def _stopped(self, call: Call) -> RouterError:
        assert call.named is not None
        model = call.named.served.entry.name
        return to_error(NothingServes("stopping", "", None), model, call.exchange.client)

    def _give_back(self, booking: Booking) -> None:
        booking.release()
        booking.place.circuit.undecided()
        self._serve_waiting(booking.place.endpoint.model)

    def _leave(self, call: Call) -> None:
        assert call.want is not None
        for gate in self._engines.gates.values():
            gate.leave(call.want)

    def _serve_waiting(self, model: str) -> None:
        gate = self._engines.gates.get(model)
        if gate is not None and gate.waiting:
            gate.serve_waiting(self._loop.time())

    # A try.

    def _send(self, call: Call, booking: Booking) -> None:
        place = booking.place
        try:
            if self._stopping:
                raise self._stopped(call)
            engine = self._engines.of(place)
            relay = Relay(
                call.exchange,
                self._loop,
                engine.pool,
                booking,
                self._sending(call, booking, engine.head(call.route.upstream)),
                partial(self._try_ended, call),
            )
            call.tries += 1
            call.endpoint = place.endpoint.id
            call.relay = relay
            self.relays.add(relay)
            relay.start()
        except BaseException:
            # The caller hears of it at once, so nobody is told a second time.
            if call.relay is not None:
                call.relay.drop()
                self.relays.discard(call.relay)
                call.relay = None
            self._give_back(booking)
            raise

    def _sending(self, call: Call, booking: Booking, prefix: bytes) -> Sending:
        named, scanned, route = call.named, call.scanned, call.route
        assert named is not None
        assert scanned is not None
        asked = call.model
        assert asked is not None
        entry = named.served.entry
        wanted = engine_name(booking.place.endpoint, named.adapter)
        written = rewrite(call.body, wanted, asked, scanned.model_span, scanned.insert_at)
        call.served_by = named.adapter or entry.name
        call.served_model = entry.name
        return Sending(
            request_head(
                prefix,
                call.exchange.header,
                PASSED_ON_ANTHROPIC if route.form == "anthropic" else PASSED_ON,
                call.request_id,
                len(written),
            ),
            written,
            asked,
            wanted.lora is not None or wanted.model != asked,
            route.terminator,
            entry.timeouts,
            call.begin_stream,
        )

    def _try_ended(self, call: Call, relay: Relay) -> None:
        """Numbers first, then whoever waits for the place, then what follows for this request."""
        self.relays.discard(relay)
        call.relay = None
        booking = relay.booking
        place = booking.place
        now = self._loop.time()
        ending = relay.ending
        if relay.undecided or relay.reason == _BUSY:
            place.circuit.undecided()
        elif ending is Ending.WHOLE and relay.status < 500:
            place.circuit.succeeded(now)
        else:
            place.circuit.failed(
                now,
                relay.reason or f"status_{relay.status}",
                at_once=relay.reason in _CONNECT_FAULTS,
            )
        booking.release()
        gate = self._engines.gates.get(place.endpoint.model)
        if gate is not None:
            gate.ended(now - relay.sent_at)
            if gate.waiting:
                gate.serve_waiting(now)
        try:
            if ending is Ending.WHOLE and not relay.streaming:
                if relay.status in _FOREIGN_STATUSES and self._is_foreign(call, relay):
                    place.out = True
                    relay.reason = f"foreign_{relay.status}"
                    self._try_another(call, relay)
                    return
                call.first_byte = relay.first_byte
                self._respond(call, relay)
            elif ending is Ending.FAILED:
                self._try_another(call, relay)
                return
            else:
                self._end_stream(call, relay)
        except Exception as error:
            self._finish(call, error)
        else:
            self._finish(call, None)

    def _is_foreign(self, call: Call, relay: Relay) -> bool:
        """Whether another engine seems to answer at an old address: one that has another key or name."""
        assert call.named is not None
        if not self._fed or call.named.adapter is not None:
            return False
        # A 404 that does not name the model is about the path, which clients choose: many engines lack some.
        return relay.status == 401 or _mentions(
            relay.body(), relay.booking.place.endpoint.served_name
        )

    def _try_another(self, call: Call, relay: Relay) -> None:
        try:
            if call.left:
                raise ClientGone
            want = call.want
            assert want is not None
            want.tried = (*want.tried, relay.booking.place)
            if relay.reason not in _CONNECT_FAULTS:
                call.failures += 1
            assert call.named is not None
            gate = self._gate(call.named)
            if call.failures > RETRIES or not _another_left(gate, want):
                raise self._gave_up(call, relay)
            self._metrics.count("retries", self._metrics.model_label(call.model), relay.reason)
            self._ask(call, gate)
        except Exception as error:
            self._finish(call, error)

    # The answer.

    def _end_stream(self, call: Call, relay: Relay) -> None:
        exchange = call.exchange
        exchange.on_gone(None)
        scanner = relay.scanner
        call.first_byte = relay.first_byte
        if scanner is not None:
            call.tokens = scanner.usage
            if call.tokens[1] is None and scanner.deltas:
                call.tokens = (call.tokens[0], scanner.deltas, call.tokens[2])
        match relay.ending:
            case Ending.WHOLE:
                call.status = 200
                exchange.end()
            case Ending.BROKEN:
                self._break_off(call, relay)
            case Ending.LATE:
                raise TimedOut(
                    f"the model {call.model!r} did not answer within its limit ({relay.reason})",
                    hopeless=True,
                )
            case Ending.STOPPED:
                call.reason = relay.reason
                raise self._stopped(call)
            case _ if relay.streaming:
                call.status = 200
                call.outcome = "client_gone"
                call.reason = relay.reason
                exchange.cut(b"")
            case _:
                raise ClientGone

    def _respond(self, call: Call, relay: Relay) -> None:
        body = relay.body()
        route = call.route
        status = relay.status
        if status == 400 and not relay.truncated and (found := recognise(body)) is not None:
            raise too_long(*found, route.form, route.prompt_member, estimated=False)
        call.status = status
        if status == 200:
            if relay.content_encoding is None:
                call.tokens = usage_of_body(body)
        else:
            call.outcome = "refused" if status < 500 else "failed"
            call.reason = f"engine_{status}"
        headers = call.headers(relay.content_type or None)
        if relay.content_encoding is not None:
            headers.append(("content-encoding", relay.content_encoding))
        if relay.retry_after is not None:
            headers.append(("retry-after", relay.retry_after))
        call.exchange.on_gone(None)
        call.exchange.respond(status, headers, body)

    def _break_off(self, call: Call, relay: Relay) -> None:
        call.status = 200
        call.outcome = "broken"
        call.reason = relay.reason
        self._metrics.count("broken_streams", self._metrics.model_label(call.model), relay.reason)
        if relay.reason == "engine_error":
            # The engine has said so itself, in the client's protocol.
            call.exchange.cut(b"")
            return
        error = broken_stream(relay.reason)
        events = 0 if relay.scanner is None else relay.scanner.events
        call.exchange.cut(event_of(error, call.route.form, call.request_id, events))

    def _gave_up(self, call: Call, relay: Relay) -> RouterError:
        client = call.exchange.client
        call.reason = relay.reason
        if relay.reason == _BUSY:
            return Overloaded(
                f"all engines of the model {call.model!r} that were asked are busy; try again later",
                retry_after=spread(1.0, client),
            )
        if relay.reason in _CONNECT_FAULTS or relay.reason.startswith("foreign_"):
            return NoEndpoint(
                f"the model {call.model!r} cannot answer now: its engine cannot be reached",
                param="model",
                retry_after=spread(5.0, client),
            )
        return UpstreamBroke(
            f"the engine of the model {call.model!r} failed before its first byte ({relay.reason})",
            retry_after=1.0,
        )


def broken_stream(reason: str) -> RouterError:
    """What a client is told in the middle of a stream."""
    if reason == "stopping":
        return UpstreamBroke("this router is stopping; what came is incomplete, try again")
    if reason.endswith("_limit"):
        return TimedOut(f"the stream was ended by a limit of the router ({reason})")
    return UpstreamBroke(f"the engine broke off the stream ({reason}); what came is incomplete")


def _mentions(body: bytes, name: str) -> bool:
    """Whether an error body has the name in it, as a word of its own."""
    word = re.escape(msgspec.json.encode(name)[1:-1])
    return re.search(rb"(?<![\w.-])%b(?![\w-])" % word, body) is not None


def _another_left(gate: Gate, want: Want) -> bool:
    return any(not place.out and place not in want.tried for place in gate.places)


def _unexpected_resume(outcome: Booking | Reason) -> None:
    raise AssertionError(f"nobody waits for {outcome!r}")
