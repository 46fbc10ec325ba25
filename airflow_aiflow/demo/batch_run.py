"""Two nights of a batch in a stack of their own: the first is killed on the way, before the second 3 % change."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_aiflow.demo.batch_outcome import BatchOutcome, Night
from airflow_aiflow.demo.encoder import SentenceEncoder
from airflow_aiflow.demo.follow import Follower
from airflow_aiflow.demo.home import claimed, prepare_home
from airflow_aiflow.demo.night import DAG, DAG_FILE, STEP, TASK, NightWatch
from airflow_aiflow.demo.paragraphs import change, read_paragraphs, write_lines
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.durable.artifact import ArtifactRef, bind_store
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.local.stack import Stack, StackPlan
from airflow_aiflow.runtime.vectors import read_vectors, require_arrow
from airflow_aiflow.storage.artifacts_connection import PlainConnection, artifact_store

#: Seconds between two looks at the parts of a stack that is kept.
WATCH_PARTS = 0.5

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


class BatchDemo:
    """
    Own the stack of both nights.

    :param options: what to run.
    :param screen: where a person reads along.
    :raises AiflowConfigError: there is nothing to embed, or something to embed with is missing; nothing was started.
    """

    def __init__(self, options: BatchOptions, screen: Screen) -> None:
        require_arrow()
        self._options, self._screen = options, screen
        self._encoder = SentenceEncoder().name
        self._paragraphs, self._texts = read_paragraphs(options.limit)
        self._home = options.home.absolute()
        self._stack: Stack | None = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start the stack."""
        self._closing.enter_context(claimed(self._home))
        try:
            dags = prepare_home(self._home, dag=DAG_FILE)
            self._screen.say(
                f"{len(self._paragraphs):,} different paragraphs of {self._texts:,} licence texts and pages of "
                f"documentation that are installed here; encoder {self._encoder}"
            )
            self._screen.say(f"starting PostgreSQL, S3, Airflow and the stand-ins in {self._home}")
            stack = Stack(StackPlan(self._home, dags))
            stack.start(lambda name, seconds: self._screen.say(f"  {name:<12} ready after {seconds:4.1f} s"))
            self._stack = stack
            return self
        except BaseException:
            self._closing.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        with self._closing:
            if stack is not None:
                stack.stop()

    @property
    def stack(self) -> Stack:
        """Give the running stack."""
        assert self._stack is not None, "use the demo by `with`"
        return self._stack

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

    def stay(self) -> None:
        """Keep the stack running until a signal comes."""
        while True:
            time.sleep(WATCH_PARTS)
            self.stack.mend()

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
            watch = NightWatch(follower, client, run_id, len(paragraphs), points, screen, stack.mend)
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
        connection = dict(self.stack.connections()["aiflow_artifacts"])
        extra = connection.pop("extra")
        store = artifact_store(PlainConnection("aiflow_artifacts", **connection, extra_dejson=extra))
        path = self._home / f"night-{number}.arrow"
        try:
            with bind_store(lambda: store):
                path.write_bytes(ref.load())
                rows, width = read_vectors(ref).shape
        finally:
            store.close()
        return str(path), rows, width


def _of_reuse(log: str) -> list[str]:
    """Choose the lines that say where vectors come from, and the last one."""
    lines = [found.group() for line in log.splitlines() if (found := re.search(r"aiflow: .*", line))]
    return [line for line in lines if " reused " in line and "(run" in line][:SHOWN] + [
        line for line in lines if line.startswith("aiflow: done")
    ][-1:]
