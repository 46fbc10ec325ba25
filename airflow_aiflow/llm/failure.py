"""
Say what a failed model call means: surely not served, refused as it is, broken off, or answered unusably.

A broken-off answer may have been billed, so it is never repeated inside an attempt; an answer of 429 or 5xx says that
nothing was served. The original error stays as the cause, with secrets and the prompt masked in its texts, because a
provider's answer may quote both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import (
    ModelError,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmRequest

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, UnexpectedModelBehavior

#: Answers of 4xx that say "not now": the same request may be served later.
NOT_NOW = frozenset({408, 409, 425, 429})

#: Characters of a provider's own message that go into ours.
LONGEST_MESSAGE = 300

#: A prompt that is shorter is not looked for in an error's text: it would blank out words that merely contain it.
SHORTEST_MASKED_PROMPT = 12

Clean = Callable[[str], str]


def cleaner(request: LlmRequest) -> Clean:
    """
    Make the function that masks, in a text for people, the secrets that Airflow knows and this request's prompts.

    :param request: whose texts must not show.
    """
    from airflow.sdk.log import redact  # type: ignore[attr-defined]  # it is there for providers, and not in __all__

    hidden: list[tuple[str, str]] = []
    for text, word in request.texts_sent():
        if len(text) >= SHORTEST_MASKED_PROMPT:
            once = [text, repr(text)[1:-1], json.dumps(text)[1:-1]]
            # An error that shows the repr of a body that quotes a prompt has escaped it twice.
            hidden += [(form, f"[{word}]") for form in dict.fromkeys([*once, *(repr(form)[1:-1] for form in once)])]

    def clean(text: str) -> str:
        for form, word in hidden:
            text = text.replace(form, word)
        return str(redact(text))

    return clean


def translate(error: Exception, who: str, clean: Clean, usage: Usage | None) -> ModelError | None:
    """
    Turn an error of a model call into ours.

    :param error: what the client raised; its texts are masked in place.
    :param who: the model and the connection.
    :param clean: masks a text.
    :param usage: what the answers that came have cost; ``None``: none came.
    :return: what to raise from it; ``None``: it is not the model's (an author's validator, say) and passes unchanged.
    """
    from pydantic_ai import exceptions as ai

    if isinstance(error, ai.ModelRequestTimeout):
        return ModelTimeoutError(f"{who} did not answer within {error.timeout:g} s")
    if isinstance(error, ai.ModelAPIError):
        clean_chain(error, clean)
        if isinstance(error, ai.ModelConnectionError):
            return _of_transport(error, who)
        return _of_answer(error, who, clean)
    if isinstance(error, ai.UnexpectedModelBehavior):
        return _of_output(error, who, usage)
    return None


def _of_transport(error: ModelConnectionError, who: str) -> ModelError:
    from pydantic_ai import exceptions as ai

    reason = _innermost(error)
    refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes(error))
    if error.phase in ("pool", "connect") or refused:
        return ModelUnavailableError(f"{who} can't be reached ({reason}): nothing was asked")
    if isinstance(error, ai.ModelTimeoutError):
        return ModelTimeoutError(f"{who} stopped answering ({reason}); it may have been billed")
    return ModelIncompleteError(
        f"the answer of {who} broke off ({reason}): it is no answer and is not recorded; it may have been billed"
    )


def _of_answer(error: ModelAPIError, who: str, clean: Clean) -> ModelError:
    from pydantic_ai import exceptions as ai

    status = getattr(error, "status_code", None)
    said = _said(error, clean)
    if error.in_stream:
        return ModelIncompleteError(f"{who} broke its answer off with an error{said}; it may have been billed")
    if isinstance(error, ai.ModelQuotaExceededError):
        return ModelRequestError(f"{who} refuses: quota or credit is used up{said}", status_code=status)
    not_now = status in NOT_NOW or (status or 0) >= 500
    if not_now or isinstance(error, ai.ModelRateLimitError | ai.ModelUnavailableError | ai.ModelServerError):
        wait = f"; it asks to wait {error.retry_after:g} s" if error.retry_after is not None else ""
        return ModelUnavailableError(
            f"{who} did not serve the call{said}{wait}", status_code=status, retry_after=error.retry_after
        )
    if status is not None or isinstance(error, ai.ModelRequestRejectedError):
        return ModelRequestError(f"{who} refuses the call as it is{said}", status_code=status)
    return ModelIncompleteError(
        f"{who} sent what is no whole answer ({_innermost(error)}): it is not recorded; it may have been billed"
    )


def _of_output(error: UnexpectedModelBehavior, who: str, usage: Usage | None) -> ModelError:
    from pydantic_ai import exceptions as ai

    if usage is None:
        _hide_answer(error)
        return ModelIncompleteError(f"{who} sent a body that is no answer: it is not recorded; it may have been billed")
    if isinstance(error, ai.ContentFilterError):
        what = "was stopped by the provider's content filter"
    elif isinstance(error, ai.IncompleteToolCall | ai.OutputTokenLimitExceeded):
        what = "was cut at the token limit before it was whole; raise max_tokens in model_settings"
    else:
        what = "does not fit the output type" + _misfits(error)
    _hide_answer(error)
    return ModelOutputError(f"the answer of {who} {what}", usage=usage)


def _misfits(error: Exception) -> str:
    """Say where an answer does not fit, without what stands there."""
    from pydantic import ValidationError

    for cause in causes(error):
        if isinstance(cause, ValidationError):
            found = cause.errors(include_url=False, include_context=False, include_input=False)
            places = [f"{'.'.join(map(str, item['loc'])) or 'the answer'}: {item['msg']}" for item in found[:5]]
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            return f" ({'; '.join(places)}{more})"
    return ""


def _hide_answer(error: UnexpectedModelBehavior) -> None:
    """Take the model's words out of an error that will stand in the task log."""
    error.body = None
    error.message = type(error).__name__ if error.args and "Refusal:" in str(error.args[0]) else error.message
    error.args = (error.message,)
    error.__cause__ = None
    error.__context__ = None


def _said(error: ModelAPIError, clean: Clean) -> str:
    status = getattr(error, "status_code", None)
    body = error.body
    words = body.get("message") if isinstance(body, dict) else body
    parts = [f"HTTP {status}" if status else "", error.provider_error_code or "", clean(str(words or ""))]
    text = ", ".join(part for part in parts if part)[:LONGEST_MESSAGE]
    return f" ({text})" if text else ""


def _innermost(error: BaseException) -> str:
    *_, last = causes(error)
    text = str(last)[:LONGEST_MESSAGE]
    return f"{type(last).__name__}: {text}" if text else type(last).__name__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """
    Walk an error and what it was raised from.

    :param error: the outermost.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def clean_chain(error: BaseException, clean: Clean) -> None:
    """
    Mask the texts of an error and of its causes, in place.

    :param error: the outermost.
    :param clean: masks a text.
    """
    for cause in causes(error):
        cause.args = tuple(_cleaned(arg, clean) for arg in cause.args)
        for name in ("message", "body"):
            value = getattr(cause, name, None)
            if isinstance(value, str | dict | list):
                setattr(cause, name, _cleaned(value, clean))


def _cleaned(value: Any, clean: Clean) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(item, clean) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    return value
