"""Write figures in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "summary"]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Sample:
    """
    Hold one value.

    :param suffix: what its name has beyond the family's: ``_sum`` and ``_count`` of a summary.
    """

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """
    Hold the values of one name.

    :param name: a counter's ends in ``_total``.
    :param meaning: one line for people.
    """

    name: str
    kind: Kind
    meaning: str
    samples: Sequence[Sample]


def exposition(families: Iterable[Family]) -> str:
    """
    Write families of figures.

    :param families: each name once; one without samples is left out.
    :raises ValueError: if a name is none, or comes twice.
    """
    seen: set[str] = set()
    lines: list[str] = []
    for family in families:
        if family.name in seen or not _NAME.fullmatch(family.name):
            raise ValueError(f"'{family.name}' is no name of a metric, or comes twice")
        seen.add(family.name)
        if family.samples:
            lines.append(f"# HELP {family.name} {_escaped(family.meaning)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines.extend(_line(family, sample) for sample in family.samples)
    return "".join(f"{line}\n" for line in lines)


def _line(family: Family, sample: Sample) -> str:
    labels = ",".join(f'{_label(name)}="{_quoted(text)}"' for name, text in sample.labels.items())
    braced = f"{{{labels}}}" if labels else ""
    return f"{family.name}{sample.suffix}{braced} {_number(sample.value)}"


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name) or name.startswith("__"):
        raise ValueError(f"'{name}' is no name of a label")
    return name


def _escaped(text: str) -> str:
    return _encodable(text).replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return repr(float(value))
