"""One answer in the making: the sequences that a request became, and the connection it goes to."""

from __future__ import annotations

from collections.abc import Callable

from agent.sim_engine.answer_forms import Form, Usage
from agent.sim_engine.greek_reply import Reply
from agent.sim_engine.http_connection import HttpConnection, as_chunk
from agent.sim_engine.model import Sequence, State


class Choice(Sequence):
    """A sequence that says `reply` as choice `index` of an answer; `sent` tokens are written."""

    __slots__ = ("answer", "index", "prompt", "reply", "sent")

    def __init__(
        self, prompt: bytes, prompt_tokens: int, chain: tuple[int, ...], reply: Reply, index: int
    ) -> None:
        super().__init__(prompt_tokens, chain, reply.tokens, reply.finish)
        self.prompt = prompt
        self.reply = reply
        self.index = index
        self.sent = 0
        self.answer: Answer


class Answer:
    """choices: in order of index, `n` for each prompt. finish: makes the body once all
    are done; not used when `stream` is given. break_after: tokens after which the connection is
    broken off."""

    def __init__(
        self,
        connection: HttpConnection,
        choices: list[Choice],
        n: int,
        finish: Callable[[Usage], bytes],
        stream: Form | None,
        break_after: int | None,
    ) -> None:
        self._connection = connection
        self.choices = choices
        self._n = n
        self._finish = finish
        self._stream = stream
        self._break_after = break_after
        self._opened = False
        self._left = len(choices)
        self._produced = 0
        self._broken = False
        self._chunks: dict[tuple[int, str], bytes] = {}
        for choice in choices:
            choice.answer = self
        if stream is not None:
            connection.open_stream()

    def progress(self, choice: Choice) -> None:
        """Writes what the choice has produced since the last call; at the end of all of them ends
        the answer."""
        if self._broken:
            return
        one_more = choice.produced == choice.sent + 1 < choice.target
        if one_more and self._opened and self._break_after is None:
            self._send_one(choice)
            return
        start, choice.sent = choice.sent, choice.produced
        self._produced += choice.produced - start
        if choice.state is State.FINISHED:
            self._left -= 1
        if self._break_after is not None and self._produced >= self._break_after:
            excess = self._produced - self._break_after
            if self._stream is not None:
                self._send_events(choice, start, max(start, choice.sent - excess))
            self._broken = True
            self._connection.break_off()
            return
        if self._stream is None:
            if not self._left:
                self._connection.answer(200, self._finish(self._usage()))
            return
        if self._left:
            self._send_events(choice, start, choice.sent)
        else:
            events = self._events(choice, start, choice.sent)
            closing = self._stream.closing(self._usage(), choice.reply)
            self._connection.close_stream(events + closing)

    def _send_one(self, choice: Choice) -> None:
        """The common case, one token in the middle of a stream. A stream says the same letters
        over and over, so each one's bytes are made once."""
        text = choice.reply.text(choice.sent, choice.produced)
        chunk = self._chunks.get((choice.index, text))
        if chunk is None:
            assert self._stream is not None
            chunk = as_chunk(self._stream.token(choice.index, text, None))
            self._chunks[choice.index, text] = chunk
        choice.sent += 1
        self._produced += 1
        self._connection.send(chunk)

    def _send_events(self, choice: Choice, start: int, end: int) -> None:
        if events := self._events(choice, start, end):
            self._connection.send(as_chunk(events))

    def _events(self, choice: Choice, start: int, end: int) -> bytes:
        form, reply, index = self._stream, choice.reply, choice.index
        assert form is not None
        parts = []
        if not self._opened:
            self._opened = True
            parts.append(form.opening(self._usage()))
        for token in range(start, end):
            ended = reply if token + 1 == reply.tokens else None
            parts.append(form.token(index, reply.text(token, token + 1), ended))
        return b"".join(parts)

    def _usage(self) -> Usage:
        # The n choices of one prompt share it: it is counted, and its cached part, by the first.
        firsts = self.choices[:: self._n]
        return Usage(
            sum(choice.prompt_tokens for choice in firsts),
            sum(choice.cached_tokens for choice in firsts),
            self._produced,
        )
