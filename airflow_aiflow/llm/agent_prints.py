"""
Say what a model request of an agent is made of, as plain values that are the same in each attempt.

A conversation counts by what the model reads: texts, tool calls with their arguments, results. Times, run ids and the
ids by which a provider names answers and calls do not count: a call counts by its place among the calls. A history is
hashed as a chain, so that a request costs its new messages and not all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.canonical import Secrets
from airflow_aiflow.durable.fingerprint import HashChain
from airflow_aiflow.exceptions import StepInputError
from airflow_aiflow.llm.call import SETTINGS_OF_THE_TRANSPORT

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import ModelRequestParameters

#: Of a part of a message, what says when, or by which name, and not what; and what no model is sent.
NOT_THE_PART = frozenset({"timestamp", "id", "metadata", "retry"})

#: Of what goes with a request, what the model does not read: whose a tool is (an id that is drawn anew in each run),
#: how and when it may be called, what only the agent's own code looks at.
NOT_THE_REQUEST = frozenset({"deferred_capability_ids", "instruction_visibility", "capability_id", "toolset_id"})
NOT_THE_TOOL = frozenset({"metadata", "timeout", "sequential"})


@dataclass(slots=True)
class _Read:
    """Hold the chain up to one message, and what that message was when it was read."""

    message: ModelMessage
    shape: tuple[object, ...]
    chain: HashChain
    #: How many tool calls were known up to here.
    calls: int


class Conversation:
    """
    Fingerprint a growing message history.

    :param secrets: how secret texts count.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = secrets
        self._read: list[_Read] = []
        #: The tool calls in the order in which they first appear, by the provider's id.
        self._calls: dict[str, int] = {}

    def digest(self, messages: Sequence[ModelMessage]) -> bytes:
        """
        Hash a history.

        :param messages: all of them; those that were hashed before, and are the same objects, cost nothing.
        :raises StepInputError: if a message holds what has no plain form.
        """
        known = 0
        while known < min(len(messages), len(self._read)) and self._is(self._read[known], messages[known]):
            known += 1
        del self._read[known:]
        chain = self._read[-1].chain if self._read else HashChain(secrets=self._secrets)
        calls = self._read[-1].calls if self._read else 0
        self._calls = dict(list(self._calls.items())[:calls])
        for message in messages[known:]:
            chain = chain.copy()
            chain.append(self._plain(message))
            self._read.append(_Read(message, _shape(message), chain, len(self._calls)))
        return chain.digest

    @staticmethod
    def _is(read: _Read, message: ModelMessage) -> bool:
        return read.message is message and read.shape == _shape(message)

    def _plain(self, message: ModelMessage) -> dict[str, Any]:
        dumped = dump_message(message)
        return {
            "kind": dumped["kind"],
            "instructions": dumped.get("instructions"),
            "parts": [self._part(part) for part in dumped["parts"]],
        }

    def _part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        plain = {name: value for name, value in part.items() if name not in NOT_THE_PART}
        call = plain.get("tool_call_id")
        if isinstance(call, str):
            plain["tool_call_id"] = self._calls.setdefault(call, len(self._calls))
        return plain


def _shape(message: ModelMessage) -> tuple[object, ...]:
    """Tell a message that was changed in place from the one that was hashed."""
    return (getattr(message, "instructions", None), *map(id, message.parts))


def dump_message(message: ModelMessage) -> dict[str, Any]:
    """
    Write a message as plain JSON data.

    :param message: of a conversation.
    :raises StepInputError: if it holds what has no JSON form.
    """
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    try:
        [dumped] = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    except ValueError as error:
        raise StepInputError(f"a message of the agent's conversation can't be written as JSON: {error}") from error
    plain: dict[str, Any] = dumped
    return plain


def plain_parameters(parameters: ModelRequestParameters) -> dict[str, Any]:
    """
    Give what goes with a request beside messages and settings: tools, output, instructions.

    :param parameters: of the request.
    """
    return {
        name: [_tool(each) for each in value] if name in ("function_tools", "output_tools") else plain_data(value)
        for name, value in _fields(parameters)
    }


def _tool(tool: Any) -> dict[str, Any]:
    return {name: plain_data(value) for name, value in _fields(tool) if name not in NOT_THE_TOOL}


def _fields(value: Any) -> list[tuple[str, Any]]:
    names = [each.name for each in fields(value) if not each.name.startswith("_")]
    return [(name, getattr(value, name)) for name in names if name not in NOT_THE_REQUEST]


def plain_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    Give the settings that decide an answer.

    :param settings: of the request; those that say how it is made are left out.
    """
    return {
        name: plain_data(value) for name, value in (settings or {}).items() if name not in SETTINGS_OF_THE_TRANSPORT
    }


def plain_data(value: Any) -> Any:
    """
    Write part of a request as JSON data, sets in order.

    :param value: of a setting, or of a tool's schema.
    :raises StepInputError: if it has no JSON form: two that have none would look alike.
    """
    from pydantic_core import to_jsonable_python

    if isinstance(value, set | frozenset):
        return sorted(map(plain_data, value), key=repr)
    try:
        return to_jsonable_python(value, bytes_mode="base64")
    except ValueError as error:
        raise StepInputError(f"a setting or tool of the agent's request can't be compared: {error}") from error
