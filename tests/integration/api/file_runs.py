"""Airflow's runs as files, so that they outlive the server that made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_aiflow.durable.submission import Submission
from tests.integration.api.conftest import FakeRun, FakeRuns


class FileRuns(FakeRuns):
    """
    Keep one file for each run, with its state.

    :param folder: of the files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def make(self, submission: Submission) -> None:
        """Make a run, or find it made, as by Airflow's unique key."""
        try:
            with (self._folder / submission.run_id).open("x") as file:
                file.write("running")
        except FileExistsError:
            return

    def look(self, submission: Submission) -> FakeRun | None:
        """Read it."""
        try:
            return FakeRun((self._folder / submission.run_id).read_text())
        except FileNotFoundError:
            return None

    def look_many(self, submissions: Sequence[Submission]) -> dict[tuple[str, str], FakeRun]:
        """Read many."""
        return {one.run: run for one in submissions if (run := self.look(one)) is not None}

    def words(self, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Give the states of many."""
        found = {run: self._folder / run[1] for run in runs}
        return {run: path.read_text() for run, path in found.items() if path.exists()}

    def stop(self, submission: Submission, keep: Any) -> bool:
        """Keep what is at work."""
        return bool(keep)

    def end(self, submission: Submission) -> None:
        """End it, where it is there."""
        path = self._folder / submission.run_id
        if path.exists():
            path.write_text("failed")
