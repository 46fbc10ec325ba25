"""An HTTP server whose answers a test writes byte by byte, for what the stand-in model would never say."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass
class Asked:
    """One request that arrived."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def chat(self) -> bool:
        return self.path.endswith("/chat/completions")


@dataclass
class Reply:
    """
    One answer.

    :param body: what is sent.
    :param announced: the Content-Length; ``None``: none, the end of the connection ends the body.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    announced: int | None = -1


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(json.dumps(value).encode(), status, headers)


def text_reply(asked: Asked, text: str, *, finish: str = "stop", model: str = "gpt-5-mini") -> Reply:
    """Answer with a text in the wire format that was asked in."""
    if asked.chat:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        shape = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice]}
        return json_reply({**shape, "model": model, "usage": usage})
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    whole = finish == "stop"
    return json_reply(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": model,
            "status": "completed" if whole else "incomplete",
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1000,
                "output_tokens": 100,
                "total_tokens": 1100,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
    )


class ScriptedModel:
    """
    Serve on loopback until the block ends.

    :param answer: gets each request, gives its answer.
    """

    def __init__(self, answer: Callable[[Asked], Reply]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = Asked(self.path, body, {name.lower(): value for name, value in self.headers.items()})
                model.asked.append(asked)
                self._send(model.answer(asked))

            def _send(self, reply: Reply) -> None:
                announced = len(reply.body) if reply.announced == -1 else reply.announced
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                if announced is not None:
                    self.send_header("Content-Length", str(announced))
                if announced != len(reply.body):
                    self.close_connection = True
                    self.send_header("Connection", "close")
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)
                self.wfile.flush()
                if self.close_connection:
                    self.connection.shutdown(socket.SHUT_RDWR)

        return Handler
