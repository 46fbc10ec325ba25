"""What the stand-in model says to a conversation, apart from the wire format in which it was asked.

An agent's conversation ends by itself: each function tool is called once after the last user message, then the output
tool, then text.

Not covered: images, audio and files (their text parts are read alone); output schemas that stand in the prompt's words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from airflow_aiflow.local.extract import summary
from airflow_aiflow.local.schema_instance import Schema, instance

#: pydantic-ai's output tools are called so, with a suffix where there are several.
OUTPUT_TOOL = "final_result"
#: A usual rule of thumb for English text; only plausible figures are needed.
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was asked.

    :param model: the name in the request.
    :param prompt: the last user message.
    :param everything: the text of all messages, which input tokens are counted from.
    :param tools: schema by tool name, in order.
    :param called: names of the tools called since the last user message.
    :param may_call: whether tools may be called at all.
    :param forced: the only tools that may be called now; empty means all.
    :param output_schema: schema of a JSON answer, where one is asked for.
    :param stream: whether the answer goes out in pieces.
    """

    model: str
    prompt: str
    everything: str
    tools: dict[str, Schema] = field(default_factory=dict)
    called: tuple[str, ...] = ()
    may_call: bool = True
    forced: tuple[str, ...] = ()
    output_schema: Schema | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class StandInAnswer:
    """What is answered: text, or a call of a tool with arguments in JSON."""

    text: str
    tool: str | None
    input_tokens: int
    output_tokens: int


def tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def choose_tool(asked: Conversation) -> str | None:
    """Decide which tool to call now, if any."""
    if not asked.may_call:
        return None
    open_tools = [name for name in asked.tools if not asked.forced or name in asked.forced]
    functions = [name for name in open_tools if not name.startswith(OUTPUT_TOOL) and name not in asked.called]
    outputs = [name for name in open_tools if name.startswith(OUTPUT_TOOL)]
    return next(iter([*functions, *outputs, *(open_tools if asked.forced else [])]), None)


def answer(asked: Conversation) -> StandInAnswer:
    """Answer a conversation; equal conversations get equal answers."""
    tool = choose_tool(asked)
    if tool is not None:
        text = json.dumps(instance(asked.tools[tool], asked.prompt), ensure_ascii=False)
    elif asked.output_schema is not None:
        text = json.dumps(instance(asked.output_schema, asked.prompt), ensure_ascii=False)
    else:
        text = summary(asked.prompt)
    return StandInAnswer(text, tool, tokens(asked.everything), max(1, tokens(text)))


def content_text(content: Any) -> str:
    """Give the text of a message's content: a string, or a list of parts of which the text parts count."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict) and part.get("text"))
    return ""


def pieces(text: str, size: int = 24) -> list[str]:
    """Cut a text into the pieces of a stream."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def allowed_names(choice: Any) -> tuple[bool, tuple[str, ...]]:
    """Read a `tool_choice` of either wire format.

    :return: whether tools may be called, and the names that must be chosen from (empty: no restriction).
    """
    if choice == "none":
        return False, ()
    if not isinstance(choice, dict):
        return True, ()
    restriction = choice.get("allowed_tools", choice)
    listed = restriction.get("tools") if isinstance(restriction, dict) else restriction
    entries = listed if isinstance(listed, list) else [choice]
    names = [entry.get("name") or entry.get("function", {}).get("name") for entry in entries]
    return True, tuple(str(name) for name in names if name)
