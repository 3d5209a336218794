"""Whether Redis can be reached: one log line per change, and a pause that grows."""

from __future__ import annotations

import logging

log = logging.getLogger("agent")

FIRST_PAUSE = 0.2  # seconds
LONGEST_PAUSE = 2.0


class Reach:
    """``reachable`` is None until the first try ended."""

    def __init__(self) -> None:
        self.reachable: bool | None = None
        self._pause = FIRST_PAUSE

    def up(self) -> None:
        """An exchange succeeded."""
        if self.reachable is not True:
            log.info("Redis is reached")
        self.reachable = True
        self._pause = FIRST_PAUSE

    def down(self, error: BaseException) -> float:
        """An exchange failed; the seconds to wait before the next try."""
        if self.reachable is not False:
            text = str(error) or type(error).__name__
            log.warning("Redis is away (%s); engines go on, nothing is launched", text)
        self.reachable = False
        pause, self._pause = self._pause, min(LONGEST_PAUSE, self._pause * 2)
        return pause
