"""Whatever is sent, the asker is told what is wrong with it and the leader goes on leading."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from orchestrator.admin.answers import error_of
from orchestrator.errors import UnknownSubject
from orchestrator.shell_errors import HigherEpochSeen, Stale, StoreAway
from tests.fakes.local_orchestrator import LocalOrchestrator, simulated


def epoch_of(one: LocalOrchestrator) -> int:
    assert one.instance.term is not None
    return one.instance.term.epoch


@pytest.mark.parametrize(
    "expires", ["infd", "nand", "1e400d", "-5d", "1000000000d", "0s", "xd", 1e300, -5, 0]
)
async def test_an_end_of_a_key_that_is_no_date_is_refused(
    orchestrator: LocalOrchestrator, expires: Any
) -> None:
    epoch = epoch_of(orchestrator)
    body = {"name": "k", "expires": expires}
    status, answer = await orchestrator.call("POST", "/api/keys", body)
    assert status == 422
    assert "expires" in answer["error"]["message"]
    assert (await orchestrator.call("GET", "/api/keys"))[1]["items"] == []
    assert epoch_of(orchestrator) == epoch, "the term went on"


@pytest.mark.parametrize(
    "body",
    [{"name": "a\nb"}, {"name": "\u202e"}, {"name": ".."}, {"name": "a", "owner": "A B"}],
)
async def test_a_key_that_nobody_can_type_is_not_made(
    orchestrator: LocalOrchestrator, body: dict[str, Any]
) -> None:
    status, answer = await orchestrator.call("POST", "/api/keys", body)
    assert status == 409
    assert answer["error"]["remedy"]


@pytest.mark.parametrize(
    "raw",
    [b'{"definition":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, b'{"definition":{"name":"\xff"}}'],
)
async def test_a_body_that_cannot_be_read_is_the_askers_fault(
    orchestrator: LocalOrchestrator, raw: bytes
) -> None:
    url = f"{orchestrator.url}/api/models"
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, data=raw) as answer,
    ):
        assert answer.status == 422
        assert (await answer.json())["error"]["code"] == "bad_request"


@pytest.mark.parametrize(
    "query", ["after=zzz", "after=-5-0", "limit=" + "9" * 5000, "limit=%D9%A1"]
)
async def test_odd_queries_of_events_are_not_a_store_that_is_away(
    orchestrator: LocalOrchestrator, query: str
) -> None:
    status, answer = await orchestrator.call("GET", f"/api/events?{query}")
    assert (status, answer["error"]["code"]) == (422, "bad_request")


@pytest.mark.parametrize(
    "number", [{"context_length": 2**64}, {"profiles": [{"engine": "sim", "min_memory_gb": 1e18}]}]
)
async def test_a_number_that_no_message_carries_ends_no_leadership(
    orchestrator: LocalOrchestrator, number: dict[str, Any]
) -> None:
    epoch = epoch_of(orchestrator)
    body = {"definition": simulated("huge", **number)}
    assert (await orchestrator.call("POST", "/api/models", body))[0] == 422
    assert epoch_of(orchestrator) == epoch


@pytest.mark.parametrize(
    ("error", "reading", "lines"),
    [
        (UnknownSubject("replica 1h is stopping; only one that serves is restarted"), False,
         ["replica 1h is stopping", "only one that serves is restarted"]),
        (StoreAway("refused"), False, ["nothing was changed: Redis is away", "refused"]),
        (StoreAway("refused", unsure=True), True, ["nothing can be shown: Redis is away", "refused"]),
    ],
)  # fmt: skip
def test_errors_are_told_in_lines(error: Exception, reading: bool, lines: list[str]) -> None:
    text = error_of(error, reading=reading).text
    assert text is not None
    told = json.loads(text)["error"]
    assert [told["message"], told["reason"]] == lines


@pytest.mark.parametrize("error", [Stale(1, 2), HigherEpochSeen(2, "a router")])
async def test_a_change_that_met_another_epoch_is_not_the_leader(
    orchestrator: LocalOrchestrator, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any) -> None:
        raise error

    monkeypatch.setattr(orchestrator.instance.store, "fenced", refused)
    status, answer = await orchestrator.call("POST", "/api/keys", {"name": "a"})
    assert (status, answer["error"]["code"]) == (503, "not_leader")
