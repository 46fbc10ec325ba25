"""A small HTTP service that creates records and keeps idempotency keys: the outside system of demo and tests.

``POST /records`` with the header ``Idempotency-Key`` creates a record once: the same key with the same body gives the
same record again (200 instead of 201), with another body it is refused (422). Without the header each request creates a
record, as many real services do. ``GET /records``, ``GET /records?key=...`` and ``GET /records/ID`` read them back.

Records are lines of a file, appended before the answer goes out, so the count survives any kill.

Run as a process of its own: ``python -m airflow_aiflow.local.record_service --port ...``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import uuid
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from airflow_aiflow.local.fault import FaultPlan, send_with
from airflow_aiflow.local.http_wire import Request, Response, Wire, serve
from airflow_aiflow.local.request_log import RequestLog, read_events

PATH = "/records"
#: Keys are stored and compared as they are; longer ones are refused, as the field does.
LONGEST_KEY = 1024


class RecordBook:
    """The records, in memory and in a file.

    :param path: the file; one that is there already is read first.
    """

    def __init__(self, path: Path) -> None:
        self.records = read_events(path)
        self._by_key = {record["key"]: record for record in self.records if record["key"] is not None}
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def create(self, key: str | None, raw: bytes, fields: Any) -> tuple[int, dict[str, Any]]:
        """Create a record, or find the one of the key.

        :param key: idempotency key; None always creates.
        :param raw: the body as it came, which is compared.
        :param fields: the body as JSON.
        :return: HTTP status and the record, or an error.
        """
        digest = hashlib.sha256(raw).hexdigest()
        known = self._by_key.get(key) if key is not None else None
        if known is not None:
            if known["digest"] != digest:
                return 422, {"error": {"message": f"key {key!r} was used with another body", "id": known["id"]}}
            return 200, known
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        record = {"id": uuid.uuid4().hex, "key": key, "digest": digest, "at": at, "fields": fields}
        os.write(self._descriptor, json.dumps(record).encode() + b"\n")
        self.records.append(record)
        if key is not None:
            self._by_key[key] = record
        return 201, record

    def find(self, key: str) -> list[dict[str, Any]]:
        """Give the record of a key, in a list."""
        record = self._by_key.get(key)
        return [record] if record else []


class RecordService:
    """Answer the requests of one server process.

    :param token: the Bearer token that clients must show.
    :param book: the records.
    :param log: where requests are counted.
    :param faults: how to misbehave.
    """

    def __init__(self, token: str, book: RecordBook, log: RequestLog, faults: FaultPlan) -> None:
        self._token = token
        self._book = book
        self._log = log
        self._faults = faults

    async def __call__(self, request: Request, wire: Wire) -> None:
        """Answer one request."""
        if not hmac.compare_digest(request.bearer().encode(), self._token.encode()):
            await wire.send(_error(401, "the token is missing or wrong"))
        elif request.method == "POST" and request.path == PATH:
            await self._create(request, wire)
        elif request.method == "GET" and request.path == PATH:
            keys = request.query.get("key")
            found = self._book.records if keys is None else self._book.find(keys[0])
            await wire.send(Response.of_json({"records": found, "count": len(found)}))
        elif request.method == "GET" and request.path.startswith(f"{PATH}/"):
            wanted = request.path.removeprefix(f"{PATH}/")
            match = [record for record in self._book.records if record["id"] == wanted]
            await wire.send(Response.of_json(match[0]) if match else _error(404, f"no record {wanted}"))
        else:
            await wire.send(_error(404, f"no such resource: {request.method} {request.path}"))

    async def _create(self, request: Request, wire: Wire) -> None:
        key = request.headers.get("idempotency-key")
        if key is not None and not 0 < len(key) <= LONGEST_KEY:
            await wire.send(_error(400, f"an idempotency key has 1 to {LONGEST_KEY} characters"))
            return
        try:
            fields = request.json()
        except ValueError as error:
            await wire.send(_error(400, f"the body is no JSON: {error}"))
            return
        fault = self._faults.next(request.body)
        request_id = uuid.uuid4().hex
        self._log.arrived(request_id, fault.kind if fault else None, key=key)
        answered = partial(self._log.answered, request_id)
        if fault is not None and fault.does_nothing:
            await send_with(fault, Response(), wire, answered)
            return
        status, value = self._book.create(key, request.body, fields)
        await send_with(fault, Response.of_json(value, status), wire, answered)


def _error(status: int, message: str) -> Response:
    return Response.of_json({"error": {"message": message}}, status)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="records with idempotency keys")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--records-file", type=Path, required=True)
    parser.add_argument("--count-file", type=Path, required=True)
    parser.add_argument("--control-file", type=Path, required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    options = parser.parse_args()
    token = options.token_file.read_text().strip()
    book = RecordBook(options.records_file)
    service = RecordService(token, book, RequestLog(options.count_file), FaultPlan(options.control_file))
    asyncio.run(serve(service, options.port))


if __name__ == "__main__":
    main()
