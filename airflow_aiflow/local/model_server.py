"""A stand-in for a language model's API. It is no model, by design: it answers by sentences of the text it is given.

It exists so that crash-safety can be shown and tested on any machine, with real HTTP, real client libraries and real
faults, without an account: it speaks chat completions, responses (both whole and streamed), embeddings and batches,
calls tools, fills JSON schemas, counts each request in a file, and misbehaves as its control file says (see `fault`).

Run as a process of its own: ``python -m airflow_aiflow.local.model_server --port ...``.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from airflow_aiflow.local import chat_completions, embeddings, responses
from airflow_aiflow.local.batch_api import FILES, BatchApi
from airflow_aiflow.local.fault import FaultPlan, send_with
from airflow_aiflow.local.http_wire import Request, Response, Wire, serve
from airflow_aiflow.local.request_log import RequestLog
from airflow_aiflow.local.stand_in_answer import Conversation, answer

#: The name that the stack's connection asks for; any other name is answered as well.
MODEL = "stand-in"
EVENT_STREAM = "text/event-stream; charset=utf-8"


class ModelServer:
    """Answer the requests of one server process.

    :param api_key: the Bearer token that clients must show.
    :param log: where requests are counted.
    :param faults: how to misbehave.
    """

    def __init__(self, api_key: str, log: RequestLog, faults: FaultPlan) -> None:
        self._api_key = api_key
        self._log = log
        self._faults = faults
        self._batches = BatchApi(faults.next_in_batch)

    async def __call__(self, request: Request, wire: Wire) -> None:
        """Answer one request."""
        if not hmac.compare_digest(request.bearer().encode(), self._api_key.encode()):
            await wire.send(_error(401, "the API key is missing or wrong", "invalid_request_error"))
        elif request.method == "GET" and request.path == "/v1/models":
            entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "airflow-aiflow"}
            await wire.send(Response.of_json({"object": "list", "data": [entry]}))
        elif request.method == "POST" and request.path in (chat_completions.PATH, responses.PATH):
            await self._complete(request, wire)
        elif request.method == "POST" and request.path == embeddings.PATH:
            await self._embed(request, wire)
        elif self._batches.serves(request):
            await self._batch(request, wire)
        else:
            await wire.send(_error(404, f"no such resource: {request.method} {request.path}", "invalid_request_error"))

    async def _embed(self, request: Request, wire: Wire) -> None:
        answer_id = f"embd_{uuid.uuid4().hex}"
        try:
            body = request.json()
            answer = embeddings.whole(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            await wire.send(_error(400, f"the request can't be read: {error}", "invalid_request_error"))
            return
        await self._send(request, wire, answer_id, answer["model"], Response.of_json(answer), 1)

    async def _batch(self, request: Request, wire: Wire) -> None:
        try:
            response = self._batches.answer(request)
        except LookupError as error:
            await wire.send(_error(404, f"there is no such thing: {error}", "invalid_request_error"))
        except (ValueError, TypeError, AttributeError) as error:
            await wire.send(_error(400, f"the request can't be read: {error}", "invalid_request_error"))
        else:
            if request.method == "POST":
                await self._send(request, wire, f"batchreq_{uuid.uuid4().hex}", MODEL, response, 1)
            else:
                await wire.send(response)

    async def _complete(self, request: Request, wire: Wire) -> None:
        chat = request.path == chat_completions.PATH
        answer_id = f"{'chatcmpl-' if chat else 'resp_'}{uuid.uuid4().hex}"
        try:
            body = request.json()
            asked = chat_completions.parse(body) if chat else responses.parse(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            await wire.send(_error(400, f"the request can't be read: {error}", "invalid_request_error"))
            return
        response, end_pieces = _response(chat, body, asked, answer_id)
        await self._send(request, wire, answer_id, asked.model, response, end_pieces)

    async def _send(
        self, request: Request, wire: Wire, answer_id: str, model: str, response: Response, end_pieces: int
    ) -> None:
        """Count a request and answer it, well or as the faults say."""
        # What a file of prompts holds is a batch's to trip over.
        fault = None if request.path == FILES else self._faults.next(request.body)
        self._log.arrived(
            answer_id,
            fault.kind if fault else None,
            digest=hashlib.sha256(request.body).hexdigest(),
            model=model,
            path=request.path,
            idempotency_key=request.headers.get("idempotency-key"),
        )
        await send_with(fault, response, wire, partial(self._log.answered, answer_id), end_pieces=end_pieces)


def _error(status: int, message: str, kind: str) -> Response:
    return Response.of_json({"error": {"message": message, "type": kind, "code": None, "param": None}}, status)


def _response(chat: bool, body: dict[str, Any], asked: Conversation, answer_id: str) -> tuple[Response, int]:
    said = answer(asked)
    headers = {"x-request-id": answer_id}
    if not asked.stream:
        shape = chat_completions.whole if chat else responses.whole
        return Response.of_json(shape(asked, said, answer_id), headers=headers), 1
    if chat:
        events, end = chat_completions.streamed(asked, said, answer_id, body)
    else:
        events, end = responses.streamed(asked, said, answer_id)
    return Response(200, b"", EVENT_STREAM, headers, tuple(events)), end


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="stand-in model server (answers by sentences of the text)")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count-file", type=Path, required=True)
    parser.add_argument("--control-file", type=Path, required=True)
    parser.add_argument("--api-key-file", type=Path, required=True)
    options = parser.parse_args()
    api_key = options.api_key_file.read_text().strip()
    server = ModelServer(api_key, RequestLog(options.count_file), FaultPlan(options.control_file))
    asyncio.run(serve(server, options.port))


if __name__ == "__main__":
    main()
