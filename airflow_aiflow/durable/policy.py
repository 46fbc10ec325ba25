"""
What an author may ask for: the options of an effect, read and checked once, before anything is written.

Options that are not built yet are refused by name, so that nobody relies on a promise that is not kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal

from airflow_aiflow.durable.identity import MAX_KEY_LENGTH, Scope
from airflow_aiflow.exceptions import EffectOptionError, FlowOptionError

OnInDoubt = Literal["ask", "hold", "retry"]
OnConflict = Literal["auto", "fail", "keep", "ask"]
Duration = timedelta | float | int

SCOPES = ("dag", "run", "global", "generation")
ON_IN_DOUBT = ("ask", "hold", "retry")
ON_CONFLICT = ("auto", "fail", "keep", "ask")

#: Options of ``effect`` whose behaviour a later release brings.
NOT_BUILT = frozenset(
    {
        "reconcile",
        "in_doubt_timeout",
        "retry_window",
        "require_approval",
        "assigned_users",
        "dedup_ttl",
        "classify",
        "compensate",
    }
)


def seconds(value: Duration, option: str) -> float:
    """
    Read a duration.

    :param value: a ``timedelta`` or seconds.
    :param option: the option's name, for the message.
    :return: seconds, more than 0.
    :raises FlowOptionError: if it is no duration, or not more than 0.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise FlowOptionError(f"{option} must be a timedelta or a number of seconds above 0, got {value!r}")
    return float(number)


def is_count(value: object) -> bool:
    """
    Say whether a value is a whole number from 0.

    :param value: what the author gave.
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True, slots=True)
class EffectOptions:
    """
    Hold the checked options of one effect.

    :param key: business key, 1 to 512 characters, kept as written; ``None``: once per name in an unmapped task.
    :param scope: where the key is unique; ``None``: ``dag`` with a key.
    :param on_in_doubt: what follows when an earlier call's outcome is unknown.
    :param identity: names of the arguments that make two requests the same; ``None``: all of them.
    :param on_conflict: what follows when the key was used with another request.
    :param timeout: seconds that one call may take.
    :param retries: tries after the first, only of outcomes that surely were not applied.
    """

    key: str | None = None
    scope: Scope | None = None
    on_in_doubt: OnInDoubt = "ask"
    identity: Sequence[str] | Literal["key"] | None = None
    on_conflict: OnConflict = "auto"
    timeout: float = 60.0
    retries: int = 3

    def __post_init__(self) -> None:
        if self.key is not None:
            check_key(self.key)
        _one_of("scope", self.scope, (None, *SCOPES))
        _one_of("on_in_doubt", self.on_in_doubt, ON_IN_DOUBT)
        _one_of("on_conflict", self.on_conflict, ON_CONFLICT)
        if not is_count(self.retries):
            raise EffectOptionError(f"retries must be a whole number from 0, got {self.retries!r}")
        if self.identity is not None and self.identity != "key":
            _check_identity(self.identity)


#: The names that ``flow.effect`` takes as keywords.
EFFECT_OPTION_NAMES = frozenset(field.name for field in fields(EffectOptions)) | NOT_BUILT


def _one_of(option: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        words = [repr(word) for word in allowed if word is not None]
        raise EffectOptionError(f"{option} must be {', '.join(words[:-1])} or {words[-1]}, got {value!r}")


def _check_identity(identity: object) -> None:
    if isinstance(identity, str):
        raise EffectOptionError(
            f"identity must be a sequence of argument names or 'key', got {identity!r}; write identity=({identity!r},)"
        )
    names = tuple(identity) if isinstance(identity, Collection) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise EffectOptionError(
            f"identity must be a sequence of argument names, or 'key' where no argument counts, got {identity!r}"
        )


def check_name(method: str, name: object) -> None:
    """
    Check a step's, effect's or event's name, before anything runs.

    :param method: for the message.
    :param name: what the author gave.
    :raises FlowOptionError: if it is no text, empty, or one that PostgreSQL does not store.
    """
    if not isinstance(name, str) or not name.strip():
        raise FlowOptionError(f"flow.{method}(): the name must be a text that is not empty, got {name!r}")
    if not _is_storable(name):
        raise FlowOptionError(f"flow.{method}(): the name {name!r} holds what PostgreSQL does not store")


def _is_storable(text: str) -> bool:
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False


def check_key(key: object) -> str:
    """
    Check a business key.

    :param key: what the author gave, after rendering.
    :raises EffectOptionError: if it is no text of 1 to 512 characters, or a template rendered to nothing.
    """
    if not isinstance(key, str):
        raise EffectOptionError(f"key must be a str, got {type(key).__name__} {key!r}")
    if not key.strip():
        raise EffectOptionError("key is empty; a business key names one real thing, such as 'invoice/4711'")
    if len(key) > MAX_KEY_LENGTH:
        raise EffectOptionError(f"key has {len(key)} characters, at most {MAX_KEY_LENGTH} are kept: {key[:60]!r}...")
    if not _is_storable(key):
        raise EffectOptionError(f"key holds U+0000 or a lone surrogate, which PostgreSQL does not store: {key!r}")
    return key


def effect_options(given: dict[str, Any], defaults: EffectOptions) -> EffectOptions:
    """
    Read keywords into options.

    :param given: keywords, all of them in ``EFFECT_OPTION_NAMES``.
    :param defaults: the deployment's.
    :raises FlowOptionError: if an option is not built yet.
    :raises EffectOptionError: if a value is not allowed.
    """
    later = sorted(name for name in NOT_BUILT & given.keys() if given[name])
    if later:
        raise FlowOptionError(f"{later[0]}= of an effect is not built yet; leave it out")
    chosen = {field.name: getattr(defaults, field.name) for field in fields(EffectOptions)}
    chosen |= {name: value for name, value in given.items() if name not in NOT_BUILT}
    if "timeout" in given:
        chosen["timeout"] = seconds(given["timeout"], "timeout")
    return EffectOptions(**chosen)
