"""The stats of tests: keep every figure, to be looked at."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """Hold one figure as it was sent; a timing is in seconds."""

    kind: Literal["count", "timing", "gauge"]
    name: str
    value: float
    tags: Mapping[str, str] = field(default_factory=dict)


class CollectedStats:
    """Implement the port ``Stats`` in memory. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.figures: list[Figure] = []

    def count(self, name: str, number: float, tags: Mapping[str, str]) -> None:
        """Keep what was added to a counter."""
        self._keep(Figure("count", name, number, dict(tags)))

    def timing(self, name: str, seconds: float, tags: Mapping[str, str]) -> None:
        """Keep how long something took."""
        self._keep(Figure("timing", name, seconds, dict(tags)))

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Keep the value of a gauge."""
        self._keep(Figure("gauge", name, value, dict(tags)))

    def named(self, name: str) -> list[Figure]:
        """
        Give the figures of one name, in the order in which they came.

        :param name: such as ``aiflow.steps.saved``.
        """
        with self._lock:
            return [figure for figure in self.figures if figure.name == name]

    def total(self, name: str) -> float:
        """
        Sum up the figures of one name.

        :param name: such as ``aiflow.steps.saved``.
        """
        return sum(figure.value for figure in self.named(name))

    def _keep(self, figure: Figure) -> None:
        with self._lock:
            self.figures.append(figure)
