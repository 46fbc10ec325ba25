"""The wire format of chat completions, whole and streamed, for the stand-in model."""

from __future__ import annotations

import json
import time
from typing import Any

from airflow_aiflow.local.stand_in_answer import Conversation, StandInAnswer, allowed_names, content_text, pieces

Message = dict[str, Any]
PATH = "/v1/chat/completions"


def parse(body: dict[str, Any]) -> Conversation:
    """Read a request.

    :raises ValueError: there are no messages.
    """
    messages: list[Message] = body.get("messages") or []
    if not messages:
        raise ValueError("'messages' is missing or empty")
    users = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    last = users[-1] if users else 0
    calls = [call for message in messages[last:] for call in message.get("tool_calls") or ()]
    functions = [tool["function"] for tool in body.get("tools") or () if tool.get("type") == "function"]
    may_call, forced = allowed_names(body.get("tool_choice"))
    wanted = body.get("response_format") or {}
    schema = wanted.get("json_schema", {}).get("schema")
    if wanted.get("type") == "json_object":
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    return Conversation(
        model=str(body.get("model", "")),
        prompt=content_text(messages[last].get("content")),
        everything="\n".join(content_text(message.get("content")) for message in messages),
        tools={str(each["name"]): each.get("parameters") or {"type": "object"} for each in functions},
        called=tuple(str(call["function"]["name"]) for call in calls),
        may_call=may_call,
        forced=forced,
        output_schema=schema,
        stream=bool(body.get("stream")),
    )


def usage(answer: StandInAnswer) -> dict[str, Any]:
    """Give the token counts of an answer."""
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _call(answer: StandInAnswer, answer_id: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{answer_id[-24:]}",
        "type": "function",
        "function": {"name": answer.tool, "arguments": arguments},
    }


def whole(asked: Conversation, answer: StandInAnswer, answer_id: str) -> dict[str, Any]:
    """Give the body of an answer that is not streamed."""
    message: Message = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.tool is not None:
        message |= {"content": None, "tool_calls": [_call(answer, answer_id, answer.text)]}
    reason = "stop" if answer.tool is None else "tool_calls"
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": usage(answer),
    }


def streamed(
    asked: Conversation, answer: StandInAnswer, answer_id: str, body: dict[str, Any]
) -> tuple[list[bytes], int]:
    """Give the events of a streamed answer.

    :return: the events, and how many of the last make the end marker.
    """
    head = {"id": answer_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": asked.model}

    def event(delta: Message, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return sse({**head, "choices": [choice]})

    if answer.tool is None:
        events = [event({"role": "assistant", "content": ""})]
        events += [event({"content": piece}) for piece in pieces(answer.text)]
    else:
        first = {"index": 0, **_call(answer, answer_id, "")}
        events = [event({"role": "assistant", "content": None, "tool_calls": [first]})]
        for piece in pieces(answer.text):
            events.append(event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
    end = [event({}, "stop" if answer.tool is None else "tool_calls")]
    if (body.get("stream_options") or {}).get("include_usage"):
        end.append(sse({**head, "choices": [], "usage": usage(answer)}))
    end.append(b"data: [DONE]\n\n")
    return [*events, *end], len(end)


def sse(value: dict[str, Any], event: str | None = None) -> bytes:
    """Frame a JSON value as a server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
