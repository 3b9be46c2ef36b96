"""A server with the chat interface of OpenAI that does what a list tells it, one item a request."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Say:
    """An answer. ``message`` is added to the assistant's message."""

    content: str | None = "done"
    finish: str = "stop"
    message: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fail:
    """An HTTP error; status 0 drops the connection without an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Sequence[Say | Fail], pause_s: float):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.lock, self.pause_s = list(script), threading.Lock(), pause_s
        self.answered = 0
        self.requests: list[dict[str, Any]] = []

    def next(self, request: dict[str, Any]) -> Say | Fail:
        """The item for this request; the last one repeats."""
        with self.lock:
            self.requests.append(request)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        item = self.server.next(body)
        time.sleep(self.server.pause_s)
        if isinstance(item, Fail):
            self._fail(item)
        elif body.get("stream"):
            self._stream(item)
        else:
            self._whole(item)

    def _fail(self, item: Fail) -> None:
        if item.status == 0:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        text = json.dumps({"error": {"message": f"status {item.status}", "type": "server"}}).encode()
        self.send_response(item.status)
        for name, value in item.headers.items():
            self.send_header(name, value)
        self._send(text, "application/json")

    def _whole(self, item: Say) -> None:
        message = {"role": "assistant", "content": item.content, **item.message}
        choice = {"index": 0, "message": message, "finish_reason": item.finish}
        self.send_response(200)
        self._send(json.dumps({**_head("chat.completion"), "choices": [choice], "usage": USAGE}).encode())

    def _stream(self, item: Say) -> None:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        text = item.content or ""
        deltas += [{"content": text[i : i + 40]} for i in range(0, len(text), 40)]
        chunks = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": item.finish}]})
        chunks.append({"choices": [], "usage": USAGE})
        head = _head("chat.completion.chunk")
        lines = [f"data: {json.dumps({**head, **chunk})}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        self.send_response(200)
        self._send("".join(lines).encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.answered += 1


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chat-1", "object": kind, "created": 1700000000, "model": "m"}


@contextmanager
def serving(*script: Say | Fail, pause_s: float = 0.0):
    """A server that runs inside a ``with``; each answer takes ``pause_s`` seconds."""
    server = Server(script, pause_s)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
