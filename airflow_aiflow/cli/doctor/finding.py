"""
A check and what it finds. A check that fails itself is a finding like any other, and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_aiflow.exceptions import AiflowError

if TYPE_CHECKING:
    from airflow_aiflow.cli.doctor.sources import Sources

T = TypeVar("T")


class Level(StrEnum):
    """Say how bad it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    Hold what a check found.

    :param found: what is there.
    :param means: what follows from it; empty where all is well.
    :param fix: a command or a setting; empty where there is nothing to mend.
    """

    level: Level
    found: str
    means: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """
    Look at one thing.

    :param name: ``part.thing``, as ``--skip`` takes it.
    :param looks: at what, for the page.
    :param mend: what usually mends it, for the page; the finding's own fix is exact.
    :param look: finds it.
    """

    name: str
    looks: str
    mend: str
    look: Callable[[Sources], Finding]


class UnreadError(AiflowError):
    """Say that what a check needs can't be read, which another check tells."""


class Source(Generic[T]):
    """
    Read something once. Who asks first hears the error; who asks later hears where it is told.

    :param told_by: the check that tells of the error.
    :param read: reads it.
    """

    def __init__(self, told_by: str, read: Callable[[], T]) -> None:
        self._told_by = told_by
        self._read = read
        self._values: list[T] = []
        self._failed = False

    def get(self) -> T:
        """
        Give it.

        :raises UnreadError: if it could not be read before.
        """
        if self._failed:
            raise UnreadError(f"not checked: see {self._told_by}")
        if not self._values:
            try:
                self._values.append(self._read())
            except UnreadError:
                raise
            except Exception:
                self._failed = True
                raise
        return self._values[0]

    @property
    def read(self) -> Sequence[T]:
        """Give it, if it was read: one or none."""
        return self._values


def ok(found: str) -> Finding:
    """
    Find that all is well.

    :param found: what is there.
    """
    return Finding(Level.OK, found)


def warning(found: str, means: str, fix: str) -> Finding:
    """
    Find what should be mended.

    :param found: what is there.
    :param means: what follows from it.
    :param fix: what mends it.
    """
    return Finding(Level.WARNING, found, means, fix)


def error(found: str, means: str, fix: str) -> Finding:
    """
    Find what breaks a promise, or keeps tasks from working.

    :param found: what is there.
    :param means: what follows from it.
    :param fix: what mends it.
    """
    return Finding(Level.ERROR, found, means, fix)


def carry_out(check: Check, sources: Sources) -> Finding:
    """
    Carry out one check, whatever happens in it.

    :param check: which one.
    :param sources: what it reads.
    """
    mend = check.mend.replace("`", "")
    try:
        return check.look(sources)
    except UnreadError as why:
        return Finding(Level.WARNING, str(why))
    except AiflowError as why:
        return Finding(Level.ERROR, str(why), "what needs it does not work", mend)
    except Exception as why:  # one check must not hide the others; a driver's text may hold an address with a password
        return Finding(Level.ERROR, f"the check itself failed: {type(why).__name__}", "nothing is known", mend)


def chosen(checks: Iterable[Check], only: Sequence[str], skip: Sequence[str]) -> list[Check]:
    """
    Choose checks.

    :param checks: all of them.
    :param only: names, or parts such as ``ledger``; none: all.
    :param skip: likewise, to leave out.
    """

    def named(check: Check, names: Sequence[str]) -> bool:
        return check.name in names or check.name.partition(".")[0] in names

    return [one for one in checks if (not only or named(one, only)) and not named(one, skip)]
