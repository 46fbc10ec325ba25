"""
Find out whether an exception hides earlier requests of the same call.

Clients follow redirects and repeat requests by themselves, and what they raise in the end tells of the last request
alone: a POST that was answered by a redirect to a dead host ends in "connection refused". The frames that an exception
came through still hold the history. Looking at them can only take away certainty, so a client whose insides have
changed costs a question, never a double.

Not covered: a client of another kind that repeats requests by itself, and a function that sends more than one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_REDIRECTED = "its request was redirected, so another one came before it"
_REPEATED = "its client had tried before"

#: Answers that surely applied nothing and that clients repeat by themselves; a 503 says so only by a header, which the
#: history does not keep.
_REFUSED = frozenset({413, 429})


def hidden_attempt(error: BaseException, surely_not_applied: Callable[[BaseException], bool]) -> str | None:
    """
    Look for an earlier request that may have been applied.

    :param error: what was raised.
    :param surely_not_applied: judges the error of an earlier request.
    :return: what there was, in words; ``None``: nothing that is known of.
    """
    for frame in _frames(error):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        look = _HISTORIES.get((package, frame.f_code.co_name))
        found = look(frame.f_locals, surely_not_applied) if look is not None else None
        if found is not None:
            return found
    return _behind_answer(error, surely_not_applied)


def _behind_answer(error: BaseException, judge: Callable[[BaseException], bool]) -> str | None:
    """Look into the answer that an exception is about: urllib3 keeps there what it had tried before."""
    answer = getattr(error, "response", None)
    for one in (answer, getattr(answer, "raw", None)):
        found = _urllib3_history({"retries": getattr(one, "retries", None)}, judge)
        if found is not None:
            return found
    return None


def _frames(error: BaseException) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _always_redirected(variables: Any, judge: Any) -> str | None:
    return _REDIRECTED


def _history_variable(variables: Any, judge: Any) -> str | None:
    return _REDIRECTED if variables.get("history") else None


def _urllib3_history(variables: Any, judge: Callable[[BaseException], bool]) -> str | None:
    for earlier in getattr(variables.get("retries"), "history", ()):
        if earlier.redirect_location is not None:
            return _REDIRECTED
        refused = earlier.status in _REFUSED if earlier.error is None else judge(earlier.error)
        if not refused:
            return _REPEATED
    return None


def _tenacity_attempts(variables: Any, judge: Any) -> str | None:
    return _REPEATED if getattr(variables.get("retry_state"), "attempt_number", 1) > 1 else None


def _openai_attempts(variables: Any, judge: Any) -> str | None:
    return _REPEATED if variables.get("retries_taken") else None


#: (package, function) -> what its variables tell.
_HISTORIES: dict[tuple[str, str], Callable[[Any, Callable[[BaseException], bool]], str | None]] = {
    ("requests", "resolve_redirects"): _always_redirected,
    ("urllib", "http_error_302"): _always_redirected,
    ("httpx", "_send_handling_redirects"): _history_variable,
    ("httpx2", "_send_handling_redirects"): _history_variable,
    ("aiohttp", "_request"): _history_variable,
    ("urllib3", "urlopen"): _urllib3_history,
    ("tenacity", "__call__"): _tenacity_attempts,
    ("tenacity", "iter"): _tenacity_attempts,
    ("openai", "request"): _openai_attempts,
}
