"""Errors of the agent."""

from __future__ import annotations


class AgentError(Exception):
    """Base of this package's errors; never raised itself."""


class BadConfig(AgentError):
    """A setting is wrong; the text says which, why, and what to write instead."""


class StateFolderBusy(AgentError):
    """Another agent works on this state folder."""


class BadStateFolder(AgentError):
    """A file of the state folder cannot be believed; going on could launch something twice."""


class IllegalMove(AgentError):
    """A shard was moved by an event that its state does not know: our own fault."""


class LaunchFailed(AgentError):
    """The operating system did not start the engine."""
