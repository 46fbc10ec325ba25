"""The report of `aiflow doctor`: as a table for people, as JSON for programs, with nothing in it that is secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_aiflow.cli.doctor.finding import Finding, Level

#: A shorter text is no secret that could be told from an ordinary word.
SHORTEST_SECRET = 4

HIDDEN = "***"

#: What stands before a finding.
_MARKS = {Level.OK: "ok", Level.WARNING: "WARNING", Level.ERROR: "ERROR"}


def masked(finding: Finding, secrets: Iterable[str]) -> Finding:
    """
    Take secrets out of a finding: none is put in, and a server's or driver's own words might hold one.

    :param finding: as found.
    :param secrets: what must not be shown.
    """
    words = sorted({one for one in secrets if len(one) >= SHORTEST_SECRET}, key=len, reverse=True)

    def clean(text: str) -> str:
        for word in words:
            text = text.replace(word, HIDDEN)
        return text

    return Finding(finding.level, clean(finding.found), clean(finding.means), clean(finding.fix))


def counted(findings: Mapping[str, Finding], level: Level) -> int:
    """
    Count findings.

    :param findings: by check.
    :param level: of this level.
    """
    return sum(1 for one in findings.values() if one.level is level)


def as_json(findings: Mapping[str, Finding]) -> dict[str, Any]:
    """
    Give the report for programs.

    :param findings: by check.
    """
    return {
        "errors": counted(findings, Level.ERROR),
        "warnings": counted(findings, Level.WARNING),
        "findings": [
            {"check": name, "level": one.level.value, "found": one.found, "means": one.means, "fix": one.fix}
            for name, one in findings.items()
        ],
    }


def as_text(findings: Mapping[str, Finding]) -> str:
    """
    Give the report for people.

    :param findings: by check.
    """
    width = max((len(name) for name in findings), default=0)
    mark_width = max(len(mark) for mark in _MARKS.values())
    indent = " " * (mark_width + width + 4)
    lines = []
    for name, one in findings.items():
        lines.append(f"{_MARKS[one.level]:<{mark_width}}  {name:<{width}}  {one.found}")
        if one.means:
            lines.append(f"{indent}means: {one.means}")
        if one.fix:
            lines.append(f"{indent}fix:   {one.fix}")
    errors, warnings = counted(findings, Level.ERROR), counted(findings, Level.WARNING)
    return "\n".join([*lines, f"{len(findings)} checks: {errors} errors, {warnings} warnings"])
