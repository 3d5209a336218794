"""An Exchange without a front: what was answered can be looked at, and the client can leave."""

from __future__ import annotations

import asyncio
import json


class FakeExchange:
    """One request; ``answered`` is set when its answer has an end of any kind."""

    def __init__(self, method="POST", path="/v1/chat/completions", body=b"", headers=None):
        self.method = method
        self.path = path
        self.client = "127.0.0.1:50000"
        self.began = asyncio.get_running_loop().time()
        self.sent = 0
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.body_error = None
        self.body_read = False
        self.status = 0
        self.answer_headers = {}
        self.answer = b""
        self.chunks = []
        self.ending = None
        self.gone = False
        self.slow = False
        self.begun = asyncio.Event()
        self._on_gone = None

    def header(self, name):
        return self.headers.get(name)

    def whole_body(self):
        return None

    async def read_body(self, cap):
        self.body_read = True
        if self.body_error is not None:
            raise self.body_error
        return self.body

    def respond(self, status, headers, body):
        assert self.ending is None
        assert not self.begun.is_set()
        self.status = status
        self.answer_headers = dict(headers)
        assert len(self.answer_headers) == len(headers), "a header is doubled"
        self.answer = body
        self.sent = len(body)
        self.ending = "whole"
        self.begun.set()

    def start(self, status, headers):
        assert self.ending is None
        assert not self.begun.is_set()
        self.status = status
        self.answer_headers = dict(headers)
        assert len(self.answer_headers) == len(headers), "a header is doubled"
        self.begun.set()

    def send(self, chunk):
        assert self.ending is None
        assert self.begun.is_set()
        if self.gone:
            return False
        self.chunks.append(chunk)
        self.answer += chunk
        self.sent += len(chunk)
        return True

    def end(self):
        assert self.ending is None
        self.ending = "clean"

    def cut(self, last):
        assert self.ending is None
        self.answer += last
        self.ending = "cut"

    def on_gone(self, callback):
        self._on_gone = callback

    def unsent_since(self):
        return self.slow

    def leave(self):
        """The client closes its connection."""
        self.gone = True
        callback, self._on_gone = self._on_gone, None
        if callback is not None:
            callback()

    @property
    def json(self):
        return json.loads(self.answer)

    @property
    def error(self):
        return self.json["error"]

    def events(self):
        """The JSON of each data event, ``[DONE]`` as text."""
        found = []
        for event in self.answer.replace(b"\r\n", b"\n").split(b"\n\n"):
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    text = line[5:].strip()
                    found.append("[DONE]" if text == b"[DONE]" else json.loads(text))
        return found
