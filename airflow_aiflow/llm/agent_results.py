"""
Write what an agent's model and tools gave as plain data, and read it back.

What a tool gives is kept as the model sees it: as JSON. Images and other files among it come back as what they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_aiflow.exceptions import PayloadDecodeError, PayloadEncodeError
from airflow_aiflow.llm.agent_prints import dump_message

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pydantic_ai.messages import ModelResponse

#: Name and id of the part as which a tool's files are written; nobody reads them.
PART = ("tool", "call")


def pack_response(response: ModelResponse) -> dict[str, Any]:
    """
    Write a model's answer.

    :param response: whole.
    """
    return dump_message(response)


def unpack_response(plain: dict[str, Any], name: str) -> ModelResponse:
    """
    Read a model's answer.

    :param plain: what ``pack_response`` gave.
    :param name: of the step, for the message.
    :raises PayloadDecodeError: if this version of pydantic-ai does not read it.
    """
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

    try:
        [message] = ModelMessagesTypeAdapter.validate_python([plain])
    except ValueError as error:
        raise PayloadDecodeError(
            f"the recorded answer of '{name}' is none that this version of pydantic-ai reads: {error}. Go on with the "
            f"version that wrote it, or clear the task with on_clear='fresh'"
        ) from error
    assert isinstance(message, ModelResponse)
    return message


async def pack_tool(call: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    """
    Run a tool and write what it gave: its result, or what it has the model told instead.

    :param call: of the tool.
    :raises PayloadEncodeError: if the result has no JSON form.
    """
    from pydantic_ai.exceptions import ModelRetry, ToolFailed
    from pydantic_ai.messages import ToolReturn
    from pydantic_core import to_jsonable_python

    try:
        value = await call
    except ModelRetry as again:
        return {"retry": str(again.message)}
    except ToolFailed as failed:
        return {"failed": failed.message}
    if not isinstance(value, ToolReturn):
        return {"value": _content(value)}
    return {
        "value": _content(value.return_value),
        "content": None if value.content is None else _content(value.content),
        "metadata": to_jsonable_python(value.metadata, bytes_mode="base64", fallback=repr),
        "tools": value.tools,
    }


def unpack_tool(plain: dict[str, Any]) -> Any:
    """
    Give a tool's result, or raise what has the model told instead.

    :param plain: what ``pack_tool`` gave.
    """
    from pydantic_ai.exceptions import ModelRetry, ToolFailed
    from pydantic_ai.messages import ToolReturn

    if "retry" in plain:
        raise ModelRetry(plain["retry"])
    if "failed" in plain:
        raise ToolFailed(plain["failed"])
    value = _read(plain["value"])
    if "tools" not in plain:
        return value
    content = None if plain["content"] is None else _read(plain["content"])
    return ToolReturn(value, content=content, metadata=plain["metadata"], tools=plain["tools"])


def _content(value: Any) -> dict[str, Any]:
    from pydantic_ai.messages import ModelRequest, ToolReturnPart
    from pydantic_core import to_jsonable_python

    if _has_files(value):
        return {"files": dump_message(ModelRequest(parts=[ToolReturnPart(PART[0], value, PART[1])]))}
    try:
        return {"json": to_jsonable_python(value, bytes_mode="base64", fallback=_numbers)}
    except ValueError as error:
        raise PayloadEncodeError(
            _where(value), f"a tool's result must have a JSON form, as models read it: {error}"
        ) from error


def _numbers(value: Any) -> Any:
    """Give numpy's scalars and arrays as plain numbers."""
    if type(value).__module__ == "numpy":
        return value.tolist()
    raise ValueError(f"{type(value).__qualname__} has none")


def _where(value: Any, path: str = "") -> str:
    """Find the first part of a value that has no JSON form."""
    from pydantic_core import to_jsonable_python

    parts: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    )
    for name, part in parts:
        try:
            to_jsonable_python(part, bytes_mode="base64", fallback=_numbers)
        except ValueError:
            return _where(part, f"{path}.{name}" if isinstance(name, str) and path else f"{path}{_index(name)}")
    return path


def _index(name: object) -> str:
    return name if isinstance(name, str) else f"[{name!r}]"


def _read(plain: dict[str, Any]) -> Any:
    if "json" in plain:
        return plain["json"]
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    [message] = ModelMessagesTypeAdapter.validate_python([plain["files"]])
    part: Any = message.parts[0]
    return part.content


def _has_files(value: Any) -> bool:
    from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, UploadedFile, VideoUrl

    if isinstance(value, dict):
        return any(map(_has_files, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_files, value))
    return isinstance(value, AudioUrl | BinaryContent | DocumentUrl | ImageUrl | UploadedFile | VideoUrl)
