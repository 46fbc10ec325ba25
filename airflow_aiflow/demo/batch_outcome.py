"""What two nights showed, in numbers, and whether the promises held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Batches in flight at once, as the DAG says, and as many that were handed over a moment ago: a kill loses no more.
IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Night:
    """
    One run.

    :param state: Airflow's word for its end.
    :param calls: paragraphs that the encoder was given, counted by itself outside of the ledger.
    :param batches: in how many batches.
    :param kills: paragraphs that were recorded at each kill.
    :param attempts: of the task.
    :param reused_from: how many vectors came from which other run.
    :param seconds: from the trigger to the end.
    :param vectors: file of the vectors; ``None``: there is none.
    :param rows: how many vectors are in it.
    :param width: how many numbers each has.
    """

    run_id: str
    state: str
    calls: int
    batches: int
    kills: tuple[int, ...]
    attempts: int
    reused_from: Mapping[str, int]
    seconds: float
    vectors: str | None
    rows: int
    width: int
    lines: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """
    Both nights.

    :param items: different paragraphs.
    :param texts: documents that they are from.
    :param changed: paragraphs that were changed before the second night.
    :param encoder: who embedded.
    :param kills_wanted: how many kills were asked for.
    """

    items: int
    texts: int
    changed: int
    batch_size: int
    encoder: str
    kills_wanted: int
    first: Night
    second: Night
    ui: str

    @property
    def repeated(self) -> int:
        """Count the paragraphs that were embedded again because of a kill."""
        return self.first.calls - self.items

    @property
    def reused(self) -> int:
        """Count the vectors of the second night that the first one paid for."""
        return self.second.reused_from.get(self.first.run_id, 0)

    def broken(self) -> Iterator[str]:
        """Yield, in words, each promise that did not hold."""
        for number, night in enumerate((self.first, self.second), 1):
            if night.state != "success":
                yield f"night {number} ended as {night.state}"
            if night.rows != self.items:
                yield f"night {number} gave {night.rows} vectors for {self.items} paragraphs"
        if len(self.first.kills) != self.kills_wanted:
            yield f"{len(self.first.kills)} of {self.kills_wanted} kills came in time: try more paragraphs"
        most = len(self.first.kills) * IN_FLIGHT * self.batch_size
        if not 0 <= self.repeated <= most:
            yield f"{self.repeated} paragraphs were embedded again, where 0 to {most} are right"
        if self.second.calls != self.changed:
            yield f"the second night embedded {self.second.calls} paragraphs, where {self.changed} had changed"
        if self.reused != self.items - self.changed:
            yield f"{self.reused} vectors were reused instead of {self.items - self.changed}"

    def as_json(self) -> dict[str, Any]:
        """Give it as one flat JSON object; the nights by themselves are in ``nights``."""
        nights = [asdict(night) for night in (self.first, self.second)]
        for night in nights:
            night.pop("lines")
            night["seconds"] = round(night["seconds"], 2)
        return {
            "items": self.items,
            "calls_first_night": self.first.calls,
            "kills": len(self.first.kills),
            "calls_second_night": self.second.calls,
            "changed": self.changed,
            "repeated": self.repeated,
            "reused": self.reused,
            "share": round(self.second.calls / self.items, 4),
            "batches_first_night": self.first.batches,
            "batches_second_night": self.second.batches,
            "batch_size": self.batch_size,
            "texts": self.texts,
            "encoder": self.encoder,
            "width": self.second.width,
            "nights": nights,
            "ui": self.ui,
            "broken": list(self.broken()),
        }
