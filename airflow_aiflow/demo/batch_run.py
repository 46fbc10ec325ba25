"""Two nights of a batch in a stack of their own: the first is killed on the way, before the second 3 % change."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_aiflow.demo.batch_outcome import BatchOutcome, Night
from airflow_aiflow.demo.encoder import SentenceEncoder
from airflow_aiflow.demo.follow import Follower
from airflow_aiflow.demo.home import prepare_home
from airflow_aiflow.demo.night import DAG, DAG_FILE, STEP, TASK, NightWatch
from airflow_aiflow.demo.own_stack import OwnStack
from airflow_aiflow.demo.paragraphs import change, read_paragraphs, write_lines
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.durable.artifact import ArtifactRef, bind_store
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.local.stack import StackPlan
from airflow_aiflow.runtime.vectors import read_vectors, require_arrow

#: Lines about reuse that are shown of the second night's log, beside its last one.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """
    What to run.

    :param home: folder of the stack; emptied.
    :param limit: at most so many paragraphs.
    :param kill_at: percentages of the paragraphs at which the first night is killed.
    :param changed: share of the paragraphs that change before the second night.
    :param batch_size: most paragraphs of a call.
    :param seed: which paragraphs change.
    """

    home: Path
    limit: int | None
    kill_at: tuple[float, ...]
    changed: float
    batch_size: int
    seed: int


class BatchDemo(OwnStack[BatchOutcome]):
    """
    Own the stack of both nights.

    :param options: what to run.
    :param screen: where a person reads along.
    :raises AiflowConfigError: there is nothing to embed, or something to embed with is missing; nothing was started.
    """

    def __init__(self, options: BatchOptions, screen: Screen) -> None:
        super().__init__(options.home.absolute(), screen)
        require_arrow()
        self._options = options
        self._encoder = SentenceEncoder().name
        self._paragraphs, self._texts = read_paragraphs(options.limit)

    def _plan(self) -> StackPlan:
        dags = prepare_home(self._home, dag=DAG_FILE)
        self._screen.say(
            f"{len(self._paragraphs):,} different paragraphs of {self._texts:,} licence texts and pages of "
            f"documentation that are installed here; encoder {self._encoder}"
        )
        return StackPlan(self._home, dags)

    def run(self) -> BatchOutcome:
        """
        Run both nights, and count.

        :raises StackError: the DAG does not load, or a run does not move.
        """
        options, screen = self._options, self._screen
        self.stack.airflow.client().wait_for_dag(DAG)
        screen.say("The first night")
        first = self._night(1, self._paragraphs, options.kill_at)
        second, changed = change(self._paragraphs, options.changed, options.seed)
        screen.say(
            f"The second night: {changed:,} paragraphs were changed, and all of them shuffled (seed {options.seed})"
        )
        return BatchOutcome(
            items=len(self._paragraphs),
            texts=self._texts,
            changed=changed,
            batch_size=options.batch_size,
            encoder=self._encoder,
            kills_wanted=len(options.kill_at),
            first=first,
            second=self._night(2, second, ()),
            ui=f"{self.stack.airflow.url}/dags/{DAG}",
        )

    def _night(self, number: int, paragraphs: Sequence[str], points: Sequence[float]) -> Night:
        stack, screen = self.stack, self._screen
        lines, counted = self._home / "paragraphs.jsonl", self._home / f"calls-{number}"
        write_lines(lines, paragraphs)
        counted.touch()
        client, began = stack.airflow.client(), time.monotonic()
        conf = {"input": str(lines), "counted_in": str(counted), "batch_size": self._options.batch_size}
        run_id = client.trigger(DAG, conf)
        screen.say(f"run {run_id} of {DAG}: {stack.airflow.url}/dags/{DAG}/runs/{run_id}")
        with Follower(stack.postgres.dsn(), run_id, dag=DAG, task=TASK, first=STEP) as follower:
            watch = NightWatch(
                follower=follower,
                client=client,
                run_id=run_id,
                items=len(paragraphs),
                points=points,
                screen=screen,
                mend=stack.mend,
            )
            with screen.open(len(paragraphs), "paragraphs"):
                state = watch.until_end()
            seconds, reused = time.monotonic() - began, follower.reused_from()
        last, batches = watch.last, [int(line) for line in counted.read_text().split()]
        path, rows, width = self._fetch(number, None if last is None else last.result)
        attempts = 0 if last is None else last.attempt
        log = client.logs(DAG, run_id, TASK, max(1, attempts)) if reused else ""
        return Night(
            run_id=run_id,
            state=state,
            calls=sum(batches),
            batches=len(batches),
            kills=tuple(watch.kills),
            attempts=attempts,
            reused_from=reused,
            seconds=seconds,
            vectors=path,
            rows=rows,
            width=width,
            lines=tuple(_of_reuse(log)),
        )

    def _fetch(self, number: int, result: bytes | None) -> tuple[str | None, int, int]:
        """Write a night's vectors to a file that a person can open."""
        given: Any = None if result is None else decode(result)
        ref = given.get("vectors") if isinstance(given, dict) else None
        if not isinstance(ref, ArtifactRef):
            return None, 0, 0
        path = self._home / f"night-{number}.arrow"
        with self._artifacts() as store, bind_store(lambda: store):
            path.write_bytes(ref.load())
            rows, width = read_vectors(ref).shape
        return str(path), rows, width


def _of_reuse(log: str) -> list[str]:
    """Choose the lines that say where vectors come from, and the last one."""
    lines = [found.group() for line in log.splitlines() if (found := re.search(r"aiflow: .*", line))]
    return [line for line in lines if " reused " in line and "(run" in line][:SHOWN] + [
        line for line in lines if line.startswith("aiflow: done")
    ][-1:]
