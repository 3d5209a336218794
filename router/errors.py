"""Every "no" a client can read: one class per row of the error table.

The official clients choose their exception by status alone; agents branch on ``code``, then on the
text. Texts say what, why with numbers, and what to do; they never hold bytes of a body or a key.
"""

from __future__ import annotations

from typing import Literal

#: The protocol in which the caller reads answers and errors.
Form = Literal["openai", "responses", "anthropic"]


class RouterError(Exception):
    """Base of the answers below; never raised itself."""

    status = 400
    type = "invalid_request_error"
    code: str | None = None
    #: Of the Anthropic form; None: the same status.
    anthropic_status: int | None = None
    anthropic_type = "invalid_request_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        hopeless: bool = False,
        allow: str | None = None,
        anthropic_message: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.hopeless = hopeless
        self.allow = allow
        self.anthropic_message = anthropic_message


class BadMember(RouterError):
    """Malformed JSON; a duplicated, wrong-typed or out-of-range member."""


class MemberRefused(RouterError):
    """A member that never passes to an engine."""

    code = "unsupported_parameter"


class ContextTooLong(RouterError):
    """The prompt (or prompt and output) does not fit the window of one request."""

    code = "context_length_exceeded"


class NoValidKey(RouterError):
    """No key, a wrong one, or an expired one."""

    status = 401
    code = "invalid_api_key"
    anthropic_type = "authentication_error"


class UnknownModel(RouterError):
    """No such name, or not for this key: one text for both."""

    status = 404
    code = "model_not_found"
    anthropic_type = "not_found_error"


class UnknownPath(RouterError):
    """Not in the route table."""

    status = 404
    anthropic_type = "not_found_error"


class WrongMethod(RouterError):
    """The path is known, the method is not for it."""

    status = 405


class BodyLate(RouterError):
    """The body did not arrive in time."""

    status = 408


class BodyOverCap(RouterError):
    """The body is larger than this router takes."""

    status = 413
    code = "request_too_large"
    anthropic_type = "request_too_large"


class EncodedBody(RouterError):
    """The body came with a content-encoding."""

    status = 415


class Overloaded(RouterError):
    """The queue is full, or the request waited to its limit."""

    status = 503
    type = "service_unavailable_error"
    code = "server_is_overloaded"
    anthropic_status = 529
    anthropic_type = "overloaded_error"


class ModelLoading(Overloaded):
    """The model is being loaded, and the hold is over."""

    code = "model_loading"


class NoEndpoint(RouterError):
    """Nothing serves the model now."""

    status = 503
    type = "service_unavailable_error"
    code = "no_endpoint"
    anthropic_type = "api_error"


class ModelOff(NoEndpoint):
    """The model is configured and deliberately not running."""

    code = "model_off"


class UpstreamBroke(RouterError):
    """The engine broke before the first byte."""

    status = 502
    type = "server_error"
    code = "upstream_error"
    anthropic_type = "api_error"


class TimedOut(RouterError):
    """A first-byte, idle or total limit passed."""

    status = 504
    type = "server_error"
    code = "timeout"
    anthropic_type = "timeout_error"


class StaticFileError(Exception):
    """The file of static mode cannot be used; the text names the place and what to write."""
