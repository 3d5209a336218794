"""The numbers of one engine, taken from its /metrics; unknown stays unknown and gets old."""

from __future__ import annotations

import msgspec

from agent.engines.launch_plan import MetricKeys
from agent.metrics_text import first_of, totals
from agent.probe import EngineClient, No

METRICS_PATH = "/metrics"
SCRAPE_LIMIT = 2.0  # seconds


class Numbers(msgspec.Struct, frozen=True):
    """One scrape. None: the engine does not have the number."""

    running: int | None = None
    waiting: int | None = None
    cache_use: float | None = None
    prompt_tokens: int | None = None
    generated_tokens: int | None = None


class Scraper:
    """Scrapes one engine. ``numbers`` are of the last scrape and empty when that one failed."""

    def __init__(self, client: EngineClient, keys: MetricKeys, now: float) -> None:
        self._client = client
        self._keys = keys
        self.numbers = Numbers()
        #: When the last scrape succeeded (or this began).
        self.at = now
        self.failures = 0

    async def scrape(self, now: float) -> Numbers:
        """Asks once; ``now`` is when. A failure leaves every number unknown."""
        answer = await self._client.text(METRICS_PATH, SCRAPE_LIMIT)
        if isinstance(answer, No):
            self.failures += 1
            self.numbers = Numbers()
            return self.numbers
        self.at = now
        self.numbers = numbers_in(answer, self._keys)
        return self.numbers


def numbers_in(text: str, keys: MetricKeys) -> Numbers:
    """The mapped numbers of a metrics page."""
    found = totals(text, keys.names)

    def whole(names: str | None) -> int | None:
        value = first_of(found, names)
        return None if value is None else int(value)

    return Numbers(
        running=whole(keys.running),
        waiting=whole(keys.waiting),
        cache_use=first_of(found, keys.cache_use),
        prompt_tokens=whole(keys.prompt_tokens),
        generated_tokens=whole(keys.generated_tokens),
    )
