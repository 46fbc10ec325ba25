"""The wire format of the Responses API, whole and streamed, for the stand-in model."""

from __future__ import annotations

import time
from typing import Any

from airflow_aiflow.local.chat_completions import sse
from airflow_aiflow.local.stand_in_answer import Conversation, StandInAnswer, allowed_names, content_text, pieces

PATH = "/v1/responses"


def parse(body: dict[str, Any]) -> Conversation:
    """Read a request.

    :raises ValueError: there is no input.
    """
    given = body.get("input")
    items: list[dict[str, Any]] = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    if not items:
        raise ValueError("'input' is missing or empty")
    users = [place for place, item in enumerate(items) if item.get("role") == "user"]
    last = users[-1] if users else 0
    functions = [tool for tool in body.get("tools") or () if tool.get("type") == "function"]
    may_call, forced = allowed_names(body.get("tool_choice"))
    texts = [str(body.get("instructions") or ""), *(content_text(item.get("content")) for item in items)]
    texts += [str(item.get("output", "")) for item in items if item.get("type") == "function_call_output"]
    wanted = (body.get("text") or {}).get("format") or {}
    schema = wanted.get("schema")
    if wanted.get("type") == "json_object":
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    return Conversation(
        model=str(body.get("model", "")),
        prompt=content_text(items[last].get("content")),
        everything="\n".join(texts),
        tools={str(each["name"]): each.get("parameters") or {"type": "object"} for each in functions},
        called=tuple(str(item["name"]) for item in items[last:] if item.get("type") == "function_call"),
        may_call=may_call,
        forced=forced,
        output_schema=schema,
        stream=bool(body.get("stream")),
    )


def _item(answer: StandInAnswer, answer_id: str, text: str, status: str) -> dict[str, Any]:
    short = answer_id[-24:]
    if answer.tool is not None:
        call = {"type": "function_call", "id": f"fc_{short}", "call_id": f"call_{short}", "name": answer.tool}
        return {**call, "arguments": text, "status": status}
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"type": "message", "id": f"msg_{short}", "role": "assistant", "status": status, "content": content}


def whole(asked: Conversation, answer: StandInAnswer, answer_id: str, *, done: bool = True) -> dict[str, Any]:
    """Give the body of an answer.

    :param done: False gives the shape that a stream begins with.
    """
    usage = {
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": answer_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed" if done else "in_progress",
        "model": asked.model,
        "output": [_item(answer, answer_id, answer.text, "completed")] if done else [],
        "usage": usage if done else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "top_p": None,
        "tool_choice": "auto",
        "tools": [],
    }


def streamed(asked: Conversation, answer: StandInAnswer, answer_id: str) -> tuple[list[bytes], int]:
    """Give the events of a streamed answer.

    :return: the events, and how many of the last make the end marker.
    """
    begun = whole(asked, answer, answer_id, done=False)
    item = _item(answer, answer_id, "", "in_progress")
    place = {"item_id": item["id"], "output_index": 0}
    steps: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
    ]
    if answer.tool is not None:
        steps += [
            ("response.function_call_arguments.delta", {**place, "delta": piece}) for piece in pieces(answer.text)
        ]
        finished = {**place, "name": answer.tool, "arguments": answer.text}
        steps.append(("response.function_call_arguments.done", finished))
    else:
        spot = {**place, "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        steps.append(("response.content_part.added", {**spot, "part": part}))
        steps += [
            ("response.output_text.delta", {**spot, "delta": piece, "logprobs": []}) for piece in pieces(answer.text)
        ]
        steps.append(("response.output_text.done", {**spot, "text": answer.text, "logprobs": []}))
        steps.append(("response.content_part.done", {**spot, "part": {**part, "text": answer.text}}))
    completed = _item(answer, answer_id, answer.text, "completed")
    steps.append(("response.output_item.done", {"output_index": 0, "item": completed}))
    steps.append(("response.completed", {"response": whole(asked, answer, answer_id)}))
    events = [
        sse({"type": name, "sequence_number": number, **fields}, name) for number, (name, fields) in enumerate(steps)
    ]
    return events, 1
