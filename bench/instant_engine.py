"""An engine that answers at once, so that what is measured is what stands in front of it.

It speaks as much HTTP/1.1 and OpenAI as routers need: chat completions (plain, or streamed with a fixed gap
between the chunks), `/v1/models`, `/health`, and `/counts`: what it has answered so far, from which a
bench knows how many chunks were sent in its window, unfinished streams included.

Every answer is built before the first request. Events are numbered in their text: a lost, repeated or
reordered one shows.

    python -m bench.instant_engine --port 0 --chunks 64 --gap-ms 10

prints `http://127.0.0.1:<port>` on its first line once it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence
from typing import Any, cast

import httptools
import msgspec
import uvloop

from bench import chat_bodies

DEFAULT_CHUNKS = 64
DEFAULT_GAP_S = 0.01
_CREATED = 1_796_100_093


class EngineSettings(msgspec.Struct, frozen=True):
    """What the engine says and how fast; `gap_s` 0 sends all chunks at once."""

    model: str = chat_bodies.MODEL
    chunks: int = DEFAULT_CHUNKS
    gap_s: float = DEFAULT_GAP_S


class Counts(msgspec.Struct):
    """Since the start: chat requests answered (streams when begun), stream chunks sent. Now: open streams."""

    requests: int = 0
    chunks: int = 0
    open_streams: int = 0


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _ChatRequest(msgspec.Struct):
    stream: bool = False
    stream_options: _StreamOptions | None = None


class Replies:
    """Every byte the engine ever sends, built once."""

    def __init__(self, settings: EngineSettings) -> None:
        usage = {
            "prompt_tokens": 320,
            "completion_tokens": settings.chunks,
            "total_tokens": 320 + settings.chunks,
        }
        words = [f"word{number} " for number in range(settings.chunks)]
        self.health = _response(200, {"status": "ok"})
        self.models = _response(
            200,
            {
                "object": "list",
                "data": [{"id": settings.model, "object": "model", "owned_by": "bench"}],
            },
        )
        self.chat = _response(
            200,
            {
                "id": "chatcmpl-bench",
                "object": "chat.completion",
                "created": _CREATED,
                "model": settings.model,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "".join(words)},
                        "finish_reason": "stop",
                    }
                ],
                "usage": usage,
            },
        )
        self.stream_head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        last = settings.chunks - 1
        self.stream_chunks = [
            _event_chunk(
                settings.model,
                choices=[
                    {
                        "index": 0,
                        "delta": {"content": word},
                        "finish_reason": "stop" if number == last else None,
                    }
                ],
            )
            for number, word in enumerate(words)
        ]
        self.stream_usage = _event_chunk(settings.model, choices=[], usage=usage)
        self.stream_end = _http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class EngineConnection(asyncio.Protocol):
    """One client's connection; requests are answered one after the other."""

    def __init__(self, replies: Replies, counts: Counts, gap_s: float) -> None:
        self._replies = replies
        self._counts = counts
        self._gap_s = gap_s
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        #: What is still to be sent of the running stream, last chunk first; empty: no stream runs.
        self._unsent: list[bytes] = []
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so this cannot be an isinstance check.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._unsent:
            self._counts.open_streams -= 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._transport.write(_refusal(400, f"not HTTP/1.1: {error}"))
            self._transport.close()

    # What the parser calls.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        path, self._url = self._url.partition(b"?")[0].decode("latin-1"), b""
        body = b"".join(self._body)
        self._body.clear()
        if self._unsent:
            # Pipelining behind a running stream: nobody does it, and guessing would mix two answers.
            self._transport.close()
            return
        self._answer(self._parser.get_method().decode("latin-1"), path, body)

    # What it answers.

    def _answer(self, method: str, path: str, body: bytes) -> None:
        match method, path:
            case "POST", chat_bodies.PATH:
                self._answer_chat(body)
            case "GET", "/health":
                self._finish(self._replies.health)
            case "GET", "/v1/models":
                self._finish(self._replies.models)
            case "GET", "/counts":
                self._finish(_response(200, msgspec.to_builtins(self._counts)))
            case _:
                self._finish(_refusal(404, f"the instant engine does not serve {method} {path}"))

    def _answer_chat(self, body: bytes) -> None:
        try:
            request = _decode_chat(body)
        except msgspec.DecodeError as error:
            self._finish(_refusal(400, f"not a chat request: {error}"))
            return
        self._counts.requests += 1
        if not request.stream:
            self._finish(self._replies.chat)
            return
        self._unsent = self._replies.stream_chunks[::-1]
        if request.stream_options is not None and request.stream_options.include_usage:
            self._unsent.insert(0, self._replies.stream_usage)
        self._counts.open_streams += 1
        self._transport.write(self._replies.stream_head)
        self._next_at = self._loop.time()
        self._send_chunk()

    def _send_chunk(self) -> None:
        # Times are taken from the stream's start, so a late wake-up does not make the stream longer.
        while self._unsent:
            self._transport.write(self._unsent.pop())
            self._counts.chunks += 1
            if self._gap_s and self._unsent:
                self._next_at += self._gap_s
                self._timer = self._loop.call_at(self._next_at, self._send_chunk)
                return
        self._counts.open_streams -= 1
        self._finish(self._replies.stream_end)

    def _finish(self, reply: bytes) -> None:
        self._transport.write(reply)
        if not self._parser.should_keep_alive():
            self._transport.close()


_decode_chat = msgspec.json.Decoder(_ChatRequest).decode
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found"}


def _response(status: int, content: Any) -> bytes:
    body = msgspec.json.encode(content)
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _refusal(status: int, message: str) -> bytes:
    return _response(status, {"error": {"message": message, "type": "invalid_request_error"}})


def _event_chunk(model: str, **fields: Any) -> bytes:
    event = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": model,
        **fields,
    }
    return _http_chunk(b"data: " + msgspec.json.encode(event) + b"\n\n")


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(
    settings: EngineSettings, *, host: str = "127.0.0.1", port: int = 0
) -> asyncio.Server:
    """Listens in the running loop; port 0 takes a free one. The caller closes the server."""
    replies, counts = Replies(settings), Counts()
    return await asyncio.get_running_loop().create_server(
        lambda: EngineConnection(replies, counts, settings.gap_s), host, port
    )


async def _run(settings: EngineSettings, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = await serve(settings, port=port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await stop.wait()
    server.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """The engine as a process, until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m bench.instant_engine", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--model", default=chat_bodies.MODEL)
    parser.add_argument("--chunks", type=int, default=DEFAULT_CHUNKS, help="events of a stream")
    parser.add_argument(
        "--gap-ms",
        type=float,
        default=DEFAULT_GAP_S * 1000,
        help="between two events; 0 sends them all at once",
    )
    given = parser.parse_args(arguments)
    if given.chunks < 1:
        parser.error(f"--chunks is {given.chunks}; a stream has at least 1")
    if given.gap_ms < 0:
        parser.error(f"--gap-ms is {given.gap_ms}; give 0 or more")
    settings = EngineSettings(given.model, given.chunks, given.gap_ms / 1000)
    uvloop.run(_run(settings, given.port))


if __name__ == "__main__":
    main()
