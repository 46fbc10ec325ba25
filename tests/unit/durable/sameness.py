"""Compare values as strictly as a replay must: same class, same value, same order."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st


def same(left: Any, right: Any) -> bool:
    """Say whether two values can't be told apart: ``1`` and ``1.0`` differ, NaN is NaN, ``-0.0`` is not ``0.0``."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) and same(left[a], right[b]) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, int | Fraction | range):
        return bool(left == right)
    return bool(left == right) and repr(left) == repr(right)


#: Text as the codec takes it: any character but lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]))

#: Everything that can be a key and has one canonical value (no NaN: it equals nothing, itself included).
hashables = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | texts
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.fractions(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)

#: Envelope-like text on purpose: keys that begin with the codec's own mark.
keys = texts | st.sampled_from(["$bytes", "$dict", "$", "$$", "$object", "$int", "$tuple", "$nothing"])

values = st.recursive(
    hashables | st.floats() | st.complex_numbers() | st.integers(-(10**700), 10**700),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(hashables, inner, max_size=3)
        | st.tuples(inner)
        | st.sets(hashables, max_size=3)
    ),
    max_leaves=15,
)
