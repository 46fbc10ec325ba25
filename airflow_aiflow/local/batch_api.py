"""
The stand-in's batch API: files, and batches of chat completions over them, in the wire format of OpenAI.

A batch is done at its second look, so that a client sees it at work and a test waits for nothing. A fault of kind
``status`` whose text a request of a batch holds makes that request fail alone.

Not covered: anything that outlives the server's process; files of any other purpose; deleting.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_aiflow.local import chat_completions
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.http_wire import Request, Response
from airflow_aiflow.local.stand_in_answer import answer

FILES, BATCHES = "/v1/files", "/v1/batches"

#: Looks at a batch that find it at work.
LOOKS = 1

#: Batches that one page of a list holds at most.
MOST_LISTED = 100

_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')


@dataclass
class StoredBatch:
    """Be one batch."""

    id: str
    input_file_id: str
    metadata: dict[str, str]
    created_at: int
    status: str = "in_progress"
    looks: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Give it as it goes over the wire."""
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": chat_completions.PATH,
            "errors": None,
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "request_counts": self.counts,
            "metadata": self.metadata,
        }


class BatchApi:
    """
    Keep files and batches.

    :param fault_of: gives the fault that a request of a batch meets.
    """

    def __init__(self, fault_of: Callable[[bytes], Fault | None]) -> None:
        self._fault_of = fault_of
        self._files: dict[str, tuple[str, bytes]] = {}
        self._batches: dict[str, StoredBatch] = {}

    def serves(self, request: Request) -> bool:
        """Say whether a request is this API's."""
        return request.path.startswith((FILES, BATCHES))

    def answer(self, request: Request) -> Response:
        """
        Answer a request.

        :raises ValueError: if it can't be read.
        :raises LookupError: if what it names is not there.
        """
        parts = request.path.removeprefix("/v1/").split("/")
        match (request.method, *parts):
            case ("POST", "files"):
                return self._keep(request)
            case ("GET", "files", file_id, "content"):
                return Response(200, self._files[file_id][1], "application/jsonl")
            case ("POST", "batches"):
                return self._begin(request.json())
            case ("GET", "batches"):
                return self._list(request)
            case ("GET", "batches", batch_id):
                return Response.of_json(self._look(self._batches[batch_id]).plain())
            case ("POST", "batches", batch_id, "cancel"):
                self._batches[batch_id].status = "cancelled"
                return Response.of_json(self._batches[batch_id].plain())
        raise LookupError(f"{request.method} {request.path}")

    def _keep(self, request: Request) -> Response:
        found = _BOUNDARY.search(request.headers.get("content-type", ""))
        if found is None:
            raise ValueError("a file comes as multipart/form-data")
        name, content = _file_of(request.body, found[1].encode())
        file_id = f"file-{uuid.uuid4().hex}"
        self._files[file_id] = (name, content)
        return Response.of_json(
            {
                "id": file_id,
                "object": "file",
                "bytes": len(content),
                "created_at": int(time.time()),
                "filename": name,
                "purpose": "batch",
                "status": "processed",
            }
        )

    def _begin(self, body: dict[str, Any]) -> Response:
        file_id = str(body["input_file_id"])
        total = len(self._files[file_id][1].splitlines())
        batch = StoredBatch(
            id=f"batch_{uuid.uuid4().hex}",
            input_file_id=file_id,
            metadata=dict(body.get("metadata") or {}),
            created_at=int(time.time()),
            counts={"total": total, "completed": 0, "failed": 0},
        )
        self._batches[batch.id] = batch
        return Response.of_json(batch.plain())

    def _list(self, request: Request) -> Response:
        newest = list(reversed(self._batches.values()))
        after = (request.query.get("after") or [""])[0]
        at = next((place + 1 for place, batch in enumerate(newest) if batch.id == after), 0)
        limit = min(int((request.query.get("limit") or ["20"])[0]), MOST_LISTED)
        page = newest[at : at + limit]
        listed = [batch.plain() for batch in page]
        ends = {"first_id": page[0].id, "last_id": page[-1].id} if page else {"first_id": None, "last_id": None}
        return Response.of_json({"object": "list", "data": listed, "has_more": at + limit < len(newest), **ends})

    def _look(self, batch: StoredBatch) -> StoredBatch:
        batch.looks += 1
        if batch.status == "in_progress" and batch.looks > LOOKS:
            self._complete(batch)
        return batch

    def _complete(self, batch: StoredBatch) -> None:
        done: list[bytes] = []
        failed: list[bytes] = []
        for line in self._files[batch.input_file_id][1].splitlines():
            fault = self._fault_of(line)
            (done if fault is None else failed).append(_answered(line, fault))
        batch.status = "completed"
        batch.counts |= {"completed": len(done), "failed": len(failed)}
        # In no order: a client must go by the ids.
        batch.output_file_id = self._written(list(reversed(done)))
        batch.error_file_id = self._written(failed)

    def _written(self, lines: list[bytes]) -> str | None:
        if not lines:
            return None
        file_id = f"file-{uuid.uuid4().hex}"
        self._files[file_id] = ("output.jsonl", b"".join(lines))
        return file_id


def _answered(line: bytes, fault: Fault | None) -> bytes:
    asked = json.loads(line)
    answer_id = f"chatcmpl-{uuid.uuid4().hex}"
    if fault is None:
        conversation = chat_completions.parse(asked["body"])
        status, body = 200, chat_completions.whole(conversation, answer(conversation), answer_id)
    else:
        status, body = fault.status, {"error": {"message": "told to fail", "type": "stand_in", "code": "told"}}
    response = {"status_code": status, "request_id": answer_id, "body": body}
    said = {"id": f"batch_req_{answer_id}", "custom_id": asked["custom_id"], "response": response, "error": None}
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"


def _file_of(body: bytes, boundary: bytes) -> tuple[str, bytes]:
    """Find the file among the parts of a form."""
    for part in body.split(b"--" + boundary):
        head, _, content = part.partition(b"\r\n\r\n")
        name = re.search(rb'filename="([^"]*)"', head)
        if name is not None:
            return name[1].decode(), content.removesuffix(b"\r\n")
    raise ValueError("the form holds no file")
