"""``/aiflow/api/v1``: sums, runs of a DAG, recoveries, batches, limits, search. They read, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from statistics import median
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from airflow_aiflow.api.addresses import LARGEST, LONGEST_ID, After, DagId, Limit, RunId, errors
from airflow_aiflow.api.execution_models import Spending
from airflow_aiflow.api.execution_views import error_text, name_of
from airflow_aiflow.api.inbox_views import where
from airflow_aiflow.api.overview_models import (
    BatchesModel,
    BatchModel,
    DeadLetter,
    DeadLetters,
    HistoryModel,
    HistoryRun,
    HitModel,
    HitsModel,
    LimitModel,
    LimitsModel,
    LimitUse,
    OverviewModel,
    RecoveryModel,
    RecoveryPage,
)
from airflow_aiflow.api.reading import LatestRun, Reading
from airflow_aiflow.api.rights import Sight, SignedIn, check
from airflow_aiflow.durable.identity import UNMAPPED
from airflow_aiflow.durable.outlier import outliers
from airflow_aiflow.durable.overview import BatchView, Hit, RecoveryView, RunSums
from airflow_aiflow.durable.stall import StallKind

#: Failed items of one answer.
MOST_FAILED = 500

#: Effects of one key that are given, and looked through for those that a user may read.
MOST_FOUND, MOST_ALIKE = 50, 1_000

#: What Airflow finds by itself once a task's heartbeats stop.
SEEN_BY_AIRFLOW = frozenset({StallKind.DEAD_WORKER, StallKind.RESTARTING})


class OverviewRoutes:
    """
    Serve what concerns many executions.

    :param reading: gives what reads; asked at the first request.
    """

    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1", tags=["overview"])
        given: tuple[tuple[str, Any, Any, Any], ...] = (
            ("/dags/{dag_id}/history", self.history, HistoryModel, errors(404)),
            ("/overview", self.overview, OverviewModel, errors()),
            ("/recoveries", self.recoveries, RecoveryPage, errors()),
            ("/batches", self.batches, BatchesModel, errors()),
            ("/batches/failed", self.failed, DeadLetters, errors(404)),
            ("/limits", self.limits, LimitsModel, errors()),
            ("/search", self.search, HitsModel, errors()),
        )
        for path, route, model, responses in given:
            routes.add_api_route(path, route, methods=["GET"], response_model=model, responses=responses)
        return routes

    def history(
        self,
        dag_id: Annotated[str, Path(min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00]+$")],
        user: SignedIn,
        limit: Annotated[int, Query(ge=1, le=100)] = 30,
    ) -> HistoryModel:
        """List the last runs of a DAG with what they paid and what they did not have to pay."""
        check(user, "GET", dag_id, missing="there is no such DAG, or it is not yours to see")
        reading = self._reading()
        runs = reading.airflow.latest(dag_id, limit)
        sums = reading.overview.run_sums(dag_id, [run.run_id for run in runs])
        return HistoryModel(items=_history(runs, sums))

    def overview(
        self, user: SignedIn, days: Annotated[int, Query(ge=1, le=366, description="Today is one; in UTC.")] = 7
    ) -> OverviewModel:
        """Sum up some days of the DAGs that you may read."""
        reading, sight = self._reading(), Sight(user)
        commit, figures = reading.commit_seconds(), reading.figures.get()
        sums = [each for each in reading.overview.days(days) if sight.reads(each.dag_id)]
        waits = [entry for entry in reading.waiting.get() if sight.reads(where(entry).dag_id)]
        detected = [seconds for dag_id, seconds in reading.overview.detections(days) if sight.reads(dag_id)]
        succeeded, failed = sum(each.succeeded for each in sums), sum(each.failed for each in sums)
        executions, recoveries = sum(each.executions for each in sums), sum(each.recoveries for each in sums)
        replayed, reused = sum(each.replayed_calls for each in sums), sum(each.reused_calls for each in sums)
        saved = sum((each.replayed_cost for each in sums), Decimal(0))
        return OverviewModel(
            days=days,
            saved=Spending(calls=replayed + reused, cost=saved),
            saved_replay=Spending(calls=replayed, cost=saved),
            reused_calls=reused,
            paid=Spending(
                calls=sum(each.paid_calls for each in sums), cost=sum((each.paid_cost for each in sums), Decimal(0))
            ),
            unpriced=sum(each.unpriced for each in sums),
            runs=sum(each.runs for each in sums),
            executions=executions,
            success_rate=succeeded / (succeeded + failed) if succeeded + failed else None,
            mean_recoveries=recoveries / executions if executions else None,
            recoveries=recoveries,
            detect_seconds_p50=median(detected) if detected else None,
            commit_seconds_p50=commit,
            in_doubt=sum(entry.effect is not None for entry in waits),
            waiting=len(waits),
            behind_seconds=figures.behind,
        )

    def recoveries(self, user: SignedIn, after: After = None, limit: Limit = 50) -> RecoveryPage:
        """List what recovery found and what it did, the latest first."""
        reading, sight = self._reading(), Sight(user)
        found = reading.overview.recoveries(sight.dags(), before=int(after) if after else LARGEST, limit=limit + 1)
        alone = reading.airflow.heartbeat_timeout()
        items = [_recovery(each, alone) for each in found[:limit] if sight.reads(each.execution.dag_id)]
        return RecoveryPage(items=items, next=str(found[limit - 1].number) if len(found) > limit else None)

    def batches(self, user: SignedIn) -> BatchesModel:
        """List maps in progress, and those that ended within a day."""
        sight = Sight(user)
        found = self._reading().overview.batches(sight.dags())
        return BatchesModel(items=[_batch(each) for each in found if sight.reads(each.execution.dag_id)])

    def failed(
        self,
        dag_id: DagId,
        run_id: RunId,
        user: SignedIn,
        task_id: Annotated[str | None, Query(min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00]+$")] = None,
        map_index: Annotated[int | None, Query(ge=UNMAPPED, lt=2**31)] = None,
        map: Annotated[str | None, Query(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_FAILED)] = 200,
    ) -> DeadLetters:
        """List the items of a run that have no result."""
        check(user, "GET", dag_id, missing="there is no such run, or it is not yours to see")
        reading = self._reading()
        rows = reading.items.failed_of_run(
            dag_id, run_id, task_id=task_id, map_index=map_index, name=map, limit=limit + 1
        )
        found = [(execution, item) for execution, _, _, item in rows]
        items = [
            DeadLetter(
                execution=name_of(execution),
                map=item.name,
                number=item.number,
                key=item.key,
                state=item.state,
                failures=item.failures,
                kills=item.kills,
                error=error_text(item, reading.cipher),
                at=item.at,
            )
            for execution, item in found[:limit]
        ]
        return DeadLetters(items=items, truncated=len(found) > limit)

    def limits(self, user: SignedIn) -> LimitsModel:
        """List the limits of model calls with what counts against them now. They belong to no DAG."""
        return LimitsModel(
            items=[
                LimitModel(
                    name=each.limit.name,
                    rpm=each.limit.rpm,
                    tpm=each.limit.tpm,
                    concurrency=each.limit.concurrency,
                    used=LimitUse(
                        requests=each.used_requests,
                        tokens=each.used_tokens,
                        running=each.slots,
                        waiting=each.waiting,
                        workers=each.workers,
                    ),
                )
                for each in self._reading().limits.limits()
            ]
        )

    def search(
        self,
        user: SignedIn,
        q: Annotated[
            str,
            Query(
                min_length=1,
                max_length=512,
                pattern=r"^[^\x00]+$",
                description="An effect's key, a run's id, a task's label as NAME=VALUE, or the SHA-256 of an artifact: "
                "its first 6 digits at least.",
            ),
        ],
    ) -> HitsModel:
        """Find effects by key, runs by id or label, artifacts by hash."""
        reading, sight = self._reading(), Sight(user)
        dags, word = sight.dags(), q.strip()
        found = [
            Hit("effect", f"{one.effect.name} {one.effect.key}", one.execution, one.number)
            for one in (reading.inbox.effects(key=word, limit=MOST_ALIKE) if word else ())
            # Before they are cut: another DAG's effects of this key must not stand in the way.
            if sight.reads(one.execution.dag_id)
        ][:MOST_FOUND]
        if word:
            found += reading.overview.runs_called(word, dags)
        if (label := word.partition("="))[1]:
            found += reading.overview.runs_labelled(label[0], label[2], dags)
        if (beginning := _hash(word)) is not None:
            found += reading.overview.artifacts(beginning, dags)
        return HitsModel(
            items=[
                HitModel(
                    what=each.what,
                    label=each.label,
                    execution=name_of(each.execution),
                    number=each.number,
                    step_key=None if each.step_key is None else each.step_key.hex(),
                )
                for each in found
                if sight.reads(each.execution.dag_id)
            ]
        )


def _hash(word: str) -> bytes | None:
    """Read the beginning of a hash, whole bytes of it."""
    if not 6 <= len(word) <= 64 or set(word.lower()) - set("0123456789abcdef"):
        return None
    return bytes.fromhex(word[: len(word) // 2 * 2])


def _history(runs: Sequence[LatestRun], sums: dict[str, RunSums]) -> list[HistoryRun]:
    durations = [
        None if run.started_at is None or run.ended_at is None else (run.ended_at - run.started_at).total_seconds()
        for run in runs
    ]
    costs = [float(sums[run.run_id].paid_cost) if run.run_id in sums else None for run in runs]
    marked = [one or other for one, other in zip(outliers(durations), outliers(costs), strict=True)]
    items = []
    for run, seconds, marks in zip(runs, durations, marked, strict=True):
        one = sums.get(run.run_id)
        items.append(
            HistoryRun(
                run_id=run.run_id,
                started_at=run.started_at,
                ended_at=run.ended_at,
                duration_ms=None if seconds is None else seconds * 1000,
                state=run.state,
                calls_paid=one.paid_calls if one else 0,
                calls_saved=one.replayed_calls + one.reused_calls if one else 0,
                cost=one.paid_cost if one else Decimal(0),
                saved_cost=one.replayed_cost if one else Decimal(0),
                unpriced=one.unpriced if one else 0,
                recoveries=one.recoveries if one else 0,
                in_doubt=one.in_doubt if one else 0,
                outlier=marks,
            )
        )
    return items


def _recovery(one: RecoveryView, alone: float) -> RecoveryModel:
    return RecoveryModel(
        number=one.number,
        found_at=one.found_at,
        kind=one.kind,
        execution=name_of(one.execution),
        evidence=one.why,
        basis=one.basis,
        deed=one.decision,
        gone_on_at=one.gone_on_at,
        detect_seconds=one.detect_seconds,
        airflow_alone_seconds=alone if one.kind in SEEN_BY_AIRFLOW else None,
        host=one.host,
        died_in=one.died_in,
    )


def _batch(one: BatchView) -> BatchModel:
    return BatchModel(
        execution=name_of(one.execution),
        map=one.name,
        state=one.state,
        live=one.live,
        done=max(0, one.done - one.failed),
        total=one.total,
        failed=one.failed,
        rate=one.rate,
        eta_seconds=one.eta_seconds,
        started_at=one.started_at,
        ended_at=one.ended_at,
    )
