"""
Compare what two generations, or two runs, have recorded: by meaning, as a replay does.

A step with the same key had the same inputs. What has no such partner is held against steps of its name and unit that
have none either; the one with the most equal arguments is taken for its former self.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from airflow_aiflow.durable.fingerprint import PRINT_BYTES, changed_parts

Verdict = Literal["same", "changed", "new", "gone"]

#: Steps of one name that a step without a partner is held against.
MOST_HELD_AGAINST = 32

#: What is said where only the outcome differs, and where nothing tells which argument does.
RESULT, ARGUMENTS = "result", "arguments"


@dataclass(frozen=True, slots=True)
class Compared:
    """
    Hold of a step what a comparison needs.

    :param result_hash: of its stored result.
    :param prints: short hashes of its arguments, in order.
    :param names: of those; ``None``: they are not kept.
    """

    key: bytes
    kind: str
    name: str
    unit: str
    result_hash: bytes
    prints: bytes | None
    duration_ms: float
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """
    Say what became of a step.

    :param changed: words for what differs.
    """

    verdict: Verdict
    before: Compared | None
    after: Compared | None
    changed: tuple[str, ...] = ()

    @property
    def one(self) -> Compared:
        """Give the later one, or the one that is gone."""
        found = self.after or self.before
        assert found is not None
        return found


def argument_names(kind: str, count: int, llm_names: Sequence[str]) -> list[str]:
    """
    Name the arguments of a step of which no names are kept: only those of model calls are known beforehand.

    :param kind: of the step.
    :param count: how many prints it has.
    :param llm_names: of a model call's parts, up to the parts of its output type.
    """
    if kind != "llm":
        return [f"argument {place}" for place in range(1, count + 1)]
    names = ["kind", *llm_names]
    return [*names, *["output type"] * (count - len(names) - 1), "version"][:count]


def changes(before: Compared, after: Compared, llm_names: Sequence[str] = ()) -> tuple[str, ...]:
    """
    Say what differs between a step and its former self, beside the result.

    :param before: the former one.
    :param after: the later one.
    :param llm_names: see ``argument_names``.
    """
    if before.key == after.key:
        return ()
    if before.prints is None or after.prints is None:
        return (ARGUMENTS,)
    count = len(after.prints) // PRINT_BYTES
    kept = next((each.names for each in (after, before) if each.names and len(each.names) == count), None)
    names = kept or argument_names(after.kind, count, llm_names)
    found = changed_parts(before.prints, after.prints, names)
    return (ARGUMENTS,) if not found else tuple(found)


def with_names(one: Compared, known: Mapping[tuple[str, str], tuple[str, ...]]) -> Compared:
    """
    Give a step that keeps no names those of its kind and name: of a map's items, one keeps them for all.

    :param one: the step.
    :param known: (kind, name) -> names.
    """
    names = known.get((one.kind, one.name)) if one.names is None else None
    return one if names is None else replace(one, names=names)


def known_names(steps: Iterable[Compared]) -> dict[tuple[str, str], tuple[str, ...]]:
    """
    Collect the names that are kept.

    :param steps: of an execution.
    """
    return {(one.kind, one.name): one.names for one in steps if one.names is not None}


def nearest(one: Compared, former: Sequence[Compared]) -> Compared | None:
    """
    Find a step's former self.

    :param one: the later one.
    :param former: of the same name and unit.
    """
    held = [each for each in former[:MOST_HELD_AGAINST] if each.prints is not None]
    if one.prints is None or not held:
        return former[0] if former else None
    return max(held, key=lambda each: _equal(each.prints, one.prints))


def compare(before: Sequence[Compared], after: Sequence[Compared], llm_names: Sequence[str] = ()) -> list[Difference]:
    """
    Compare two records of the same work.

    :param before: in the order of time.
    :param after: in the order of time.
    :param llm_names: see ``argument_names``.
    :return: in the order of the later one; what is gone at the end.
    """
    known = known_names(before) | known_names(after)
    by_key = {one.key: one for one in before}
    keys = {one.key for one in after}
    left: dict[tuple[str, str, str], list[Compared]] = defaultdict(list)
    for one in before:
        if one.key not in keys:
            left[one.kind, one.unit, one.name].append(one)
    found = []
    for one in after:
        same = by_key.get(one.key)
        if same is not None:
            differs = same.result_hash != one.result_hash
            found.append(Difference("changed" if differs else "same", same, one, (RESULT,) if differs else ()))
            continue
        former = nearest(one, left[one.kind, one.unit, one.name])
        if former is None:
            found.append(Difference("new", None, one))
            continue
        left[one.kind, one.unit, one.name].remove(former)
        found.append(Difference("changed", former, one, changes(former, with_names(one, known), llm_names)))
    return found + [Difference("gone", one, None) for each in left.values() for one in each]


def counts(differences: Sequence[Difference]) -> Counter[str]:
    """
    Count verdicts.

    :param differences: what ``compare`` gave.
    """
    return Counter(each.verdict for each in differences)


def _equal(one: bytes | None, other: bytes | None) -> int:
    if one is None or other is None or len(one) != len(other):
        return -1
    return sum(one[at : at + PRINT_BYTES] == other[at : at + PRINT_BYTES] for at in range(0, len(one), PRINT_BYTES))
