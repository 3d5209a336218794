"""An engine of scripted behaviour on a real socket, which notes what reaches it."""

from __future__ import annotations

import asyncio
import json

CHUNKS = ("Stock", "holm", " is", " the", " capital.")


def json_answer(status=200, value=None, headers=""):
    body = json.dumps(value).encode()
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


def chat_answer(model):
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(CHUNKS)},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    }


def chat_event(model, text, finish=None):
    value = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(value).encode() + b"\n\n"


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"


def http_chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Received:
    """One request as the engine saw it."""

    def __init__(self, path, headers, body):
        self.path = path
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


class Conversation:
    """One connection while it is answered."""

    def __init__(self, writer, request):
        self.writer = writer
        self.request = request
        self.closes = False

    async def write(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data):
        await self.write(http_chunk(data))

    def reset(self):
        """RST instead of FIN."""
        self.writer.transport.abort()
        self.closes = True

    def close(self):
        self.closes = True


async def answer_chat(talk):
    """What a well-behaved engine does."""
    asked = talk.request.json
    model = asked["model"]
    if not asked.get("stream"):
        await talk.write(json_answer(200, chat_answer(model)))
        return
    await talk.write(STREAM_HEAD)
    for text in CHUNKS:
        await talk.chunk(chat_event(model, text))
    await talk.chunk(chat_event(model, "", "stop"))
    await talk.chunk(DONE)
    await talk.write(b"0\r\n\r\n")


class FakeEngine:
    """``behave`` answers each request; ``closed`` is set when a connection was closed by the peer."""

    def __init__(self, behave=answer_chat):
        self.behave = behave
        self.requests = []
        self.connections = 0
        self.open = 0
        self.arrived = asyncio.Event()
        self.closed = asyncio.Event()
        self._tasks = set()
        self._server = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def authority(self):
        return f"127.0.0.1:{self.port}"

    async def start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def stop_listening(self):
        self._server.close()

    async def stop(self):
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self.closed.set()
            self._tasks.discard(task)
            writer.transport.abort()

    async def _converse(self, reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            headers = {}
            for line in lines:
                name, _, value = line.partition(":")
                assert name.lower() not in headers, f"doubled header {name}"
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers["content-length"]))
            request = Received(first.split()[1], headers, body)
            self.requests.append(request)
            self.arrived.set()
            talk = Conversation(writer, request)
            behaving = asyncio.ensure_future(self.behave(talk))
            # The peer's leaving is noticed while the engine thinks, as engines do.
            leaving = asyncio.ensure_future(self._watch(reader))
            try:
                await asyncio.wait({behaving, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not behaving.done():
                    return
                behaving.result()
            finally:
                behaving.cancel()
                leaving.cancel()
                await asyncio.gather(behaving, leaving, return_exceptions=True)
            if talk.closes:
                return

    async def _watch(self, reader):
        while not reader.at_eof():
            if reader._buffer:
                await asyncio.sleep(3600)
            await reader._wait_for_data("watch")
