"""Messages as bytes: MessagePack on the wire, one typed decoder per kind of message.

Unknown fields are ignored and a field not sent is ``UNSET``, so one protocol version older and one
newer read each other (R185, R186).
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from orchestrator.wire.errors import UnreadableMessage

#: Raised by one when a message changes in a way that an older reader would misread.
PROTOCOL = 1

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """The message as MessagePack."""
    return _encoder.encode(message)


class Reader(Generic[T]):
    """Decodes one type (or union of tagged types) from MessagePack."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def __call__(self, raw: bytes) -> T:
        """The message in ``raw``; UnreadableMessage says what does not fit."""
        try:
            return self._decoder.decode(raw)
        except msgspec.MsgspecError as error:
            raise UnreadableMessage(str(error)) from None
