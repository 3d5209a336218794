"""What can go wrong in a bench, by whose fault it is."""

from __future__ import annotations


class BenchError(Exception):
    """Base of the bench's errors; raised only as one of its children."""


class MissingTool(BenchError):
    """Something that only the system can give is not here; the text names the package."""


class InstallFailed(BenchError):
    """The peers' environment could not be made."""


class ContestantFailed(BenchError):
    """A contestant did not start, ended by itself, or could not be reached."""


class WrongAnswer(BenchError):
    """A contestant answers, but not what the engine said; it is not timed."""


class LoadFailed(BenchError):
    """The load generator failed, or requests failed under load: the figures would mean nothing."""
