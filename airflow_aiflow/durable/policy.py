"""
What an author may ask for: the options of an effect, read and checked once, before anything is written.

What is wrong is refused by name, with the values that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal

from airflow_aiflow.durable.identity import MAX_KEY_LENGTH, Scope
from airflow_aiflow.durable.reconcile import Finding, Intent
from airflow_aiflow.exceptions import EffectOptionError, FlowOptionError

if TYPE_CHECKING:
    from airflow_aiflow.durable.classify import Kind

OnInDoubt = Literal["ask", "hold", "retry"]
OnConflict = Literal["auto", "fail", "keep", "ask"]
Duration = timedelta | float | int

SCOPES = ("dag", "run", "global", "generation")
ON_IN_DOUBT = ("ask", "hold", "retry")
ON_CONFLICT = ("auto", "fail", "keep", "ask")

#: Longest duration, in seconds: 100 years. PostgreSQL's timestamps, and the waits of an operating system, end somewhere
#: above it, and a ledger's row with a longer one could not be read any more.
LONGEST = 100 * 365.25 * 86_400

#: Options of ``effect`` that are durations, in seconds once they are checked.
DURATIONS = ("timeout", "in_doubt_timeout", "retry_window", "dedup_ttl")

#: Those of them that may be ``None``: no limit.
OR_NONE = ("retry_window", "dedup_ttl")


def seconds(value: Duration, option: str) -> float:
    """
    Read a duration.

    :param value: a ``timedelta`` or seconds.
    :param option: the option's name, for the message.
    :return: seconds, more than 0.
    :raises FlowOptionError: if it is no duration, not more than 0, or longer than ``LONGEST``.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise FlowOptionError(f"{option} must be a timedelta or a number of seconds above 0, got {value!r}")
    if number > LONGEST:
        raise FlowOptionError(f"{option} must be at most 100 years, got {value!r}")
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
    :param reconcile: asks the target about a call whose outcome is unknown, before ``on_in_doubt`` follows.
    :param in_doubt_timeout: seconds that a task waits for a person's word on a doubt or an approval.
    :param retry_window: seconds for which the target remembers our key; ``None``: for ever.
    :param require_approval: whether a person must agree to the request before it is first sent.
    :param assigned_users: who may answer; empty: everybody with the right to.
    :param dedup_ttl: seconds for which the effect is known; ``None``: for ever.
    :param classify: the author's reading of an exception, before ours; ``None`` from it: as ours says.
    :param compensate: takes the effect back.
    """

    key: str | None = None
    scope: Scope | None = None
    on_in_doubt: OnInDoubt = "ask"
    identity: Sequence[str] | Literal["key"] | None = None
    on_conflict: OnConflict = "auto"
    timeout: float = 60.0
    retries: int = 3
    reconcile: Callable[[Intent], Finding] | None = None
    in_doubt_timeout: float = 86_400.0
    retry_window: float | None = None
    require_approval: bool = False
    assigned_users: Sequence[str] = ()
    dedup_ttl: float | None = None
    classify: Callable[[BaseException], Kind | None] | None = None
    compensate: Callable[[Intent, Any], None] | None = None

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
        if not isinstance(self.require_approval, bool):
            raise EffectOptionError(f"require_approval must be True or False, got {self.require_approval!r}")
        users = self.assigned_users
        if (
            isinstance(users, str)
            or not isinstance(users, Collection)
            or not all(isinstance(user, str) for user in users)
        ):
            raise EffectOptionError(f"assigned_users must be a sequence of user ids, got {self.assigned_users!r}")
        for option in ("reconcile", "classify", "compensate"):
            if getattr(self, option) is not None and not callable(getattr(self, option)):
                raise EffectOptionError(f"{option} must be a function, got {getattr(self, option)!r}")
        for option in ("classify", "compensate"):  # called where no event loop runs any more
            if iscoroutinefunction(getattr(self, option)):
                raise EffectOptionError(
                    f"{option} is a coroutine function, which can't be awaited; write a plain 'def'"
                )


#: The names that ``flow.effect`` takes as keywords.
EFFECT_OPTION_NAMES = frozenset(field.name for field in fields(EffectOptions))

_KEY_ALONE = frozenset({"key"})


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
    :raises FlowOptionError: if a duration is none.
    :raises EffectOptionError: if a value is not allowed.
    """
    others = {name: value for name, value in given.items() if value is not getattr(defaults, name)}
    if others.keys() == _KEY_ALONE:
        return _keyed(defaults, check_key(others["key"]))
    chosen = {name: getattr(defaults, name) for name in EFFECT_OPTION_NAMES} | given
    for name in DURATIONS:
        if name in given and (given[name] is not None or name not in OR_NONE):
            chosen[name] = seconds(given[name], name)
    return EffectOptions(**chosen)


def _keyed(defaults: EffectOptions, key: str) -> EffectOptions:
    """Give checked options another key: what most calls name, without checking the rest again."""
    options = object.__new__(EffectOptions)
    for name in EFFECT_OPTION_NAMES:
        object.__setattr__(options, name, getattr(defaults, name))
    object.__setattr__(options, "key", key)
    return options
