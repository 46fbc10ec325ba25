"""`aiflow db clean` over a real ledger: what goes, and what stays, whatever Airflow says; its API is a stand-in."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.cli import api_address, ledger_address, ledger_clean
from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.clean import CleanPlan, Scope
from airflow_aiflow.durable.effect import Outcome
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.submission import SubmissionRequest, SubmissionState
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.hooks.airflow_runs import AirflowRuns
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_clean import COUNTS, PostgresClean
from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.testing import DurableTask
from bench import many
from bench.recovery import OWNER
from tests.airflow_api import PASSWORD, TOKEN, AirflowStandIn, serving
from tests.contract.ledger_world import a_question, an_attempt, an_effect, an_execution, an_intent, mark, take
from tests.integration.storage.recovery_world import RecoveryWorld
from tests.integration.storage.test_recovery_plans import reads_all, scans

DAG, DAY = "billing", 86_400.0

#: All that grows with runs.
TABLES = (*COUNTS, "execution", "effect", "intent", "submission", "callback", "budget")

#: Runs of a task with so many steps and events each, that succeeded now.
FILL = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state, finished_at, heard_at)
    select sha256((%(run)s || n)::bytea), %(dag)s, %(run)s || n, 'task', -1, 'succeeded', now(), now()
    from generate_series(1, %(runs)s) n
    returning execution_id
),
attempts as (
    insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,
        run_after, sign, owner, ended_at, ending)
    select execution_id, 1, 1, gen_random_uuid(), 1, 3, 3, 0, now(), 'first', '{}', now(), 'succeeded' from made
),
events as (
    insert into aiflow.event (execution_id, fence, seq, kind, data)
    select execution_id, 1, n, 'step', '{}' from made, generate_series(1, %(steps)s) n
),
labels as (
    insert into aiflow.label (execution_id, name, value) select execution_id, 'team', 'a' from made
)
insert into aiflow.step (execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result,
    seal, ended_at, duration_ms)
select execution_id, 1, sha256(('step ' || execution_id || ' ' || n)::bytea), 'step', 'page', '',
    sha256('print'), n, 1, convert_to(repeat('x', 100), 'UTF8'), 's', now(), 1
from made, generate_series(1, %(steps)s) n
"""


class Runs(AirflowStandIn):
    """Hold runs of DAGs, and list them page by page."""

    def __init__(self) -> None:
        super().__init__(DAG, "", [], {})
        self.runs: dict[str, list[str]] = {DAG: []}
        #: Runs that a list leaves out, as for a reader who may not see them.
        self.unlisted: set[str] = set()
        self.refuse = 0
        #: Whether a proxy, that lost the server, answers for each run.
        self.proxy_404 = False
        self.page = 100
        self.before_page: Callable[[int], None] = lambda offset: None

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        """Answer what a cleaner asks."""
        if path == "/auth/token" or token != f"Bearer {TOKEN}":
            return super().answer(method, path, query, body, token)
        self.requests.append(f"{method} {path}")
        if self.refuse:
            return self.refuse, {"detail": "refused by the test"}
        words = path.removeprefix("/api/v2/dags").split("/", 3)[1:]
        if not words:
            return 200, {"dags": [], "total_entries": 0}
        mine = self.runs.get(words[0])
        if words[2:] and "/" in words[2]:  # more of the path, as a real server takes it
            return 404, {"error": "API route not found"}
        if mine is None and len(words) < 3:
            return 404, {"detail": f"Dag with id: {words[0]} was not found"}
        if words[2:] and self.proxy_404:
            return 404, {"detail": "Not Found"}
        if mine is None or (words[2:] and words[2] not in mine):
            return 404, {"detail": f"The DagRun with dag_id: `{words[0]}` and run_id: `{words[2]}` was not found"}
        return 200, self._listed(mine, query) if words[1:] == ["dagRuns"] else {"dag_id": words[0]}

    def _listed(self, mine: list[str], query: dict[str, list[str]]) -> Any:
        offset = int(query["offset"][0])
        self.before_page(offset)
        seen = [one for one in mine if one not in self.unlisted]
        page = seen[offset : offset + self.page]
        return {"dag_runs": [{"dag_run_id": one} for one in page], "total_entries": len(seen)}


@pytest.fixture(scope="module")
def addresses(postgres_server: PostgresServer) -> tuple[str, str]:
    owner = postgres_server.fresh_database("clean")
    upgrade(owner)
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"])), owner


@pytest.fixture
def world(addresses: tuple[str, str]) -> Iterator[RecoveryWorld]:
    made = RecoveryWorld(*addresses)
    names = [sql.Identifier("aiflow", name) for name in (*TABLES, "lease", "word", "told", "budget_hold")]
    made.behind.execute(sql.SQL("truncate {} cascade").format(sql.SQL(", ").join(names)))
    yield made
    made.close()


@pytest.fixture
def airflow(world: RecoveryWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    stand_in = Runs()
    with serving(stand_in) as url:
        monkeypatch.setenv(api_address.VARIABLE, connection(url))
        monkeypatch.setenv(ledger_address.VARIABLE, world.dsn.replace("postgresql://", "postgres://"))
        yield stand_in


def connection(url: str, password: str = PASSWORD) -> str:
    host, _, port = url.removeprefix("http://").partition(":")
    return json.dumps({"conn_type": "http", "host": host, "port": int(port), "login": "admin", "password": password})


Clean = Callable[..., Any]


@pytest.fixture
def clean(airflow: Runs, capsys: pytest.CaptureFixture[str]) -> Clean:
    def clean(*words: str, code: int = 0, before: str = "30d") -> Any:
        assert main(["db", "clean", "--before", before, "--json", "--yes", *words]) == code
        return json.loads(capsys.readouterr().out)

    return clean


def rows(world: RecoveryWorld, dag_id: str | None = None) -> Counter[str]:
    """Count the rows of each table; of one DAG: those of its executions."""
    found: Counter[str] = Counter()
    for name in TABLES:
        text = sql.SQL("select count(*) from {} t").format(sql.Identifier("aiflow", name))
        if dag_id is not None and name in COUNTS:
            text = text + sql.SQL(" join aiflow.execution x using (execution_id) where x.dag_id = %(dag)s")
        elif dag_id is not None and name != "execution":
            continue
        elif dag_id is not None:
            text = text + sql.SQL(" where t.dag_id = %(dag)s")
        [(number,)] = world.behind.execute(text, {"dag": dag_id}).fetchall()
        if number:
            found[name] = number
    return found


def fill(world: RecoveryWorld, *, run: str = "old_", runs: int = 3, steps: int = 4, dag: str = DAG) -> None:
    world.behind.execute(FILL, {"dag": dag, "run": run, "runs": runs, "steps": steps})


def task(world: RecoveryWorld, run_id: str, on_clear: OnClear = "auto") -> DurableTask:
    return DurableTask(ledger=world.ledger, clock=SystemClock(), dag_id=DAG, run_id=run_id, on_clear=on_clear)


#: What really ran, by name.
RAN: Counter[str] = Counter()


def count() -> int:
    RAN["steps"] += 1
    return RAN["steps"]


def pay() -> str:
    RAN["effects"] += 1
    return "paid"


class Calls:
    """Do a step and an effect, and see how often each really ran."""

    def __init__(self) -> None:
        RAN.clear()
        self.fail = False

    def __call__(self, flow: Flow) -> None:
        flow.step("count", count)
        flow.effect("pay", pay, key="invoice 7")
        if self.fail:
            raise RuntimeError("the test's own")

    @property
    def steps(self) -> int:
        return RAN["steps"]

    @property
    def effects(self) -> int:
        return RAN["effects"]


# --- what goes ---


def test_many_old_runs_go_and_nothing_else_is_touched(world: RecoveryWorld, airflow: Runs, clean: Clean) -> None:
    """C54: the ledger's size is bounded, and no live row is lost."""
    fill(world, runs=200, steps=100)
    fill(world, run="kept_", runs=50, steps=20, dag="reports")
    airflow.runs["reports"] = [f"kept_{n}" for n in range(1, 51)]
    world.pass_time(90 * DAY)
    calls, live = Calls(), task(world, "live")
    live.run(calls)
    airflow.runs[DAG].append("live")
    others = rows(world, "reports")
    before = rows(world)

    seen = clean("--dry-run")
    expected = {"execution": 200, "attempt": 200, "step": 20_000, "event": 20_000, "label": 200}
    assert seen["removable"] == {DAG: expected}
    assert seen["left"] == {"run": 50}
    assert rows(world) == before

    said = clean()
    assert said["removed"] == {name: expected[name] for name in said["removed"]}
    assert len(said["removed"]) == 5
    assert rows(world, "reports") == others
    assert rows(world) == before - Counter(expected)
    live.run(calls)
    assert (calls.steps, calls.effects) == (1, 1)

    # What one round of runs needed is enough for the next one as well.
    world.behind.execute("vacuum aiflow.step, aiflow.event")
    [(size,)] = world.behind.execute("select pg_relation_size('aiflow.step')").fetchall()
    fill(world, run="next_", runs=200, steps=100)
    [(again,)] = world.behind.execute("select pg_relation_size('aiflow.step')").fetchall()
    assert again <= 1.1 * size


def test_it_says_what_will_go_and_that_artifacts_stay(
    world: RecoveryWorld, airflow: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(world)
    world.pass_time(90 * DAY)
    assert main(["db", "clean", "--before", "30d", "--yes"]) == 0
    said = capsys.readouterr()
    assert said.err.index("will go:") < said.err.index("3/3")
    assert "billing  3          3        12    12" in said.err
    assert "a later call with such a key is still not made again" in said.err
    assert said.out.splitlines()[-1].startswith("artifacts in the object store were not removed")


def test_without_a_terminal_somebody_has_to_say_yes(
    world: RecoveryWorld, airflow: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(world)
    world.pass_time(90 * DAY)
    assert main(["db", "clean", "--before", "30d"]) == 1
    assert "--yes" in capsys.readouterr().err
    assert rows(world)["execution"] == 3


def test_at_a_terminal_it_asks(
    world: RecoveryWorld, airflow: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(world)
    world.pass_time(90 * DAY)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(["", "yes"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))
    assert main(["db", "clean", "--before", "30d"]) == 1
    assert (capsys.readouterr().out, rows(world)["execution"]) == ("nothing was removed\n", 3)
    assert main(["db", "clean", "--before", "30d"]) == 0
    assert rows(world) == Counter()


def test_an_execution_with_very_many_rows_goes_in_parts(
    world: RecoveryWorld, airflow: Runs, clean: Clean, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_aiflow.storage.postgres_clean.MOST_ROWS", 100)
    fill(world, runs=2, steps=333)
    world.pass_time(90 * DAY)
    assert clean()["removed"]["step"] == 666
    assert rows(world) == Counter()


# --- what stays ---


def test_a_run_that_waits_for_its_retry_is_not_touched_and_replays(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    """C15: cleaned to the last second, between two tries."""
    calls, waiting = Calls(), task(world, "waiting")
    calls.fail = True
    with pytest.raises(RuntimeError):
        waiting.run(calls)
    airflow.runs[DAG].append("waiting")
    fill(world, runs=1)
    world.pass_time(2)
    before = rows(world)
    said = clean(before="0m")
    assert said["removed"]["execution"] == 1
    assert said["left"] == {"run": 1}
    assert rows(world)["step"] == before["step"] - 4
    calls.fail = False
    waiting.run(calls)
    assert (calls.steps, calls.effects) == (1, 1)


def test_what_is_younger_than_the_moment_stays(world: RecoveryWorld, airflow: Runs, clean: Clean) -> None:
    fill(world)
    world.pass_time(29 * DAY)
    before = rows(world)
    said = clean()
    assert (said["removable"], said["removed"]) == ({}, {})
    assert rows(world) == before


def test_one_that_has_not_ended_stays(world: RecoveryWorld, airflow: Runs, clean: Clean) -> None:
    take(world.ledger, an_attempt(an_execution()))
    world.pass_time(90 * DAY)
    said = clean()
    assert (said["removable"], said["removed"]) == ({}, {})
    assert rows(world)["execution"] == 1


def ended(world: RecoveryWorld, held: str) -> int:
    """Have an execution that ended long ago, and that something holds."""
    taken = take(world.ledger, an_attempt(an_execution()))
    pk = taken.lease.execution_pk
    if held == "effect":
        world.ledger.intend(taken.lease, an_intent(an_effect()))
    if held == "question":
        world.ledger.ask(taken.lease, a_question())
    world.ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    world.pass_time(90 * DAY)
    if held == "lease":
        world.behind.execute("insert into aiflow.lease select %s, 1, now(), now()", [pk])
    if held == "requeue":
        mark(world, taken.lease, 0, 1)
    if held == "call":
        world.behind.execute(HOLD, [pk])
    return pk


HOLD = """
with b as (
    insert into aiflow.budget (identity, dag_id, run_id, task_id, name, cost, tokens, created_at)
    values (sha256('b'), 'billing', 'run', 'pay', '', 1, 1, now() - interval '90 days') returning budget_id
)
insert into aiflow.budget_hold (hold_id, budget_id, execution_id, generation, fence, step_key, cost, tokens, until)
select gen_random_uuid(), budget_id, %s, 1, 1, 'k', 1, 1, now() + interval '1 hour' from b
"""


@pytest.mark.parametrize("held", ["lease", "effect", "question", "requeue", "call"])
def test_what_something_still_holds_stays(world: RecoveryWorld, airflow: Runs, clean: Clean, held: str) -> None:
    ended(world, held)
    before = rows(world)
    said = clean("--effects")
    assert said["left"] == {held: 1}
    assert said["removed"] == {}
    assert rows(world) == before


def test_a_run_that_is_made_again_under_its_old_id_keeps_what_its_later_tasks_recorded(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    """Its first task is at work; Airflow's word that the run is gone is older than that."""
    fill(world, runs=1)
    world.pass_time(90 * DAY)
    take(world.ledger, an_attempt(an_execution(dag_id=DAG, run_id="old_1", task_id="first")))
    before = rows(world)
    assert clean()["left"] == {"lease": 1}
    assert rows(world) == before


def test_what_is_taken_up_after_the_look_stays(world: RecoveryWorld, addresses: tuple[str, str]) -> None:
    execution = an_execution()
    taken = take(world.ledger, an_attempt(execution))
    world.ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    world.pass_time(90 * DAY)
    with closing(PostgresClean.connect(addresses[0])) as ledger:
        scope = Scope(ledger.now() - timedelta(days=30))
        plan = CleanPlan(executions={taken.lease.execution_pk: (execution.dag_id, execution.run_id)})
        again = take(world.ledger, an_attempt(execution, try_number=2))
        world.ledger.finish(again.lease, ExecutionState.FAILED, result=None)
        assert not +ledger.remove(list(plan.executions), plan, scope)[0]
    assert rows(world)["execution"] == 1


# --- effects ---


def test_an_effect_stays_and_its_key_is_not_called_again(
    world: RecoveryWorld, airflow: Runs, clean: Clean, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = Calls()
    task(world, "first").run(calls)
    world.pass_time(90 * DAY)
    said = clean()
    assert (said["removed"]["step"], "execution" in said["removed"]) == (1, False)
    assert rows(world) == Counter(execution=1, attempt=1, effect=1, intent=1)
    assert main(["effects", "list", "--key", "invoice 7", "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["effects"]
    assert main(["effects", "show", str(one["number"])]) == 0
    assert "first" in capsys.readouterr().out

    airflow.runs[DAG].append("second")
    task(world, "second").run(calls)
    assert (calls.steps, calls.effects) == (2, 1)
    assert clean()["removable"] == {}


def test_with_effects_the_key_is_called_again(world: RecoveryWorld, airflow: Runs, clean: Clean) -> None:
    calls = Calls()
    task(world, "first").run(calls)
    world.pass_time(90 * DAY)
    seen = clean("--effects", "--dry-run")["removable"][DAG]
    assert (seen["effect"], seen["intent"], seen["execution"]) == (1, 1, 1)
    assert clean("--effects")["removed"]["effect"] == 1
    assert rows(world) == Counter()
    task(world, "second").run(calls)
    assert calls.effects == 2


@pytest.mark.parametrize("effects", [False, True])
def test_who_wrote_an_earlier_intent_of_a_live_runs_effect_stays(
    world: RecoveryWorld, airflow: Runs, clean: Clean, effects: bool
) -> None:
    """Else a late word that the earlier call did succeed would point to nothing."""
    first = take(world.ledger, an_attempt(an_execution(run_id="first")))
    effect = an_effect()
    tried = an_intent(effect)
    world.ledger.intend(first.lease, tried)
    world.ledger.settle(tried.intent_id, "not_applied", result=None)
    world.ledger.finish(first.lease, ExecutionState.FAILED, result=None)
    second = take(world.ledger, an_attempt(an_execution(run_id="second")))
    world.ledger.intend(second.lease, an_intent(effect, seen=1))
    airflow.runs[DAG].append("second")
    world.pass_time(90 * DAY)
    clean(*(["--effects"] if effects else []))
    assert rows(world)["execution"] == 2
    assert rows(world)["intent"] == 2


@pytest.mark.parametrize("effects", [False, True])
def test_whose_effect_is_taken_up_while_a_batch_is_removed_stays(
    world: RecoveryWorld,
    addresses: tuple[str, str],
    airflow: Runs,
    monkeypatch: pytest.MonkeyPatch,
    effects: bool,
) -> None:
    """Else a late word that its call did succeed would point to nothing, and the effect vanish from every look."""
    first = take(world.ledger, an_attempt(an_execution(run_id="first")))
    effect = an_effect()
    tried = an_intent(effect)
    world.ledger.intend(first.lease, tried)
    world.ledger.settle(tried.intent_id, "not_applied", result=None)
    world.ledger.finish(first.lease, ExecutionState.FAILED, result=None)
    world.pass_time(90 * DAY)
    # Else, without `--effects`, nothing of it would go and the batch would leave it out.
    world.behind.execute("insert into aiflow.label values (%s, 'team', 'a')", [first.lease.execution_pk])
    second = take(world.ledger, an_attempt(an_execution(run_id="second")))

    def meanwhile(name: LiteralString) -> LiteralString:
        if name == "clean_steps":  # the effects were looked at, and nothing is removed yet
            world.ledger.intend(second.lease, an_intent(effect, seen=1))
        return statement(name)

    with (
        closing(PostgresClean.connect(addresses[0])) as ledger,
        closing(AirflowApi(airflow.url, login="admin", password=PASSWORD)) as api,
    ):
        scope = Scope(ledger.now() - timedelta(days=30), effects=effects)
        plan = ledger_clean.make_plan(ledger, AirflowRuns(api), scope)
        monkeypatch.setattr("airflow_aiflow.storage.postgres_clean.statement", meanwhile)
        ledger.remove(list(plan.executions), plan, scope)
    assert rows(world)["execution"] == 2
    world.ledger.settle(tried.intent_id, "succeeded", result=tried.request)
    assert world.ledger.effect(effect) is not None


def test_with_effects_one_that_a_live_run_tried_before_stays(world: RecoveryWorld, airflow: Runs, clean: Clean) -> None:
    live = take(world.ledger, an_attempt(an_execution(run_id="live")))
    effect = an_effect()
    tried = an_intent(effect)
    world.ledger.intend(live.lease, tried)
    world.ledger.settle(tried.intent_id, "not_applied", result=None)
    world.ledger.finish(live.lease, ExecutionState.FAILED, result=None)
    other = take(world.ledger, an_attempt(an_execution(run_id="other")))
    again = an_intent(effect, seen=1)
    world.ledger.intend(other.lease, again)
    world.ledger.settle(again.intent_id, "succeeded", result=again.request)
    world.ledger.finish(other.lease, ExecutionState.FAILED, result=None)
    airflow.runs[DAG].append("live")
    world.pass_time(90 * DAY)
    clean("--effects")
    found = world.ledger.effect(effect)
    assert found is not None
    assert found.state == "succeeded"


def test_with_effects_one_that_two_runs_tried_goes_in_the_end(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    effect = an_effect()
    outcomes: tuple[Outcome, ...] = ("not_applied", "succeeded")
    for seen, outcome in enumerate(outcomes):
        taken = take(world.ledger, an_attempt(an_execution()))
        tried = an_intent(effect, seen=seen)
        world.ledger.intend(taken.lease, tried)
        world.ledger.settle(tried.intent_id, outcome, result=tried.request if seen else None)
        world.ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    world.pass_time(90 * DAY)
    clean()
    assert rows(world)["execution"] == 2
    assert clean("--effects")["removed"]["intent"] == 2
    clean("--effects")
    assert rows(world) == Counter()


# --- submissions and budgets ---


@pytest.fixture
def submissions(addresses: tuple[str, str]) -> Iterator[PostgresSubmissions]:
    with closing(PostgresSubmissions.connect(addresses[0])) as opened:
        yield opened


SUBMISSION_ENDED = """
update aiflow.submission set
    state = 'succeeded', finished_at = now() - %(ended)s, made_at = now() - %(ended)s, key_until = now() + %(free)s
"""


@pytest.mark.parametrize(("ended_ago", "free_in", "goes"), [(90, -1, True), (20, -1, False), (90, 1, False)])
def test_a_submission_goes_with_its_run_once_its_key_is_free(
    world: RecoveryWorld,
    airflow: Runs,
    clean: Clean,
    submissions: PostgresSubmissions,
    ended_ago: int,
    free_in: int,
    goes: bool,
) -> None:
    made, _ = submissions.submit(SubmissionRequest("ann", DAG, {}, key=str(uuid4())), window_days=30)
    world.behind.execute(SUBMISSION_ENDED, {"ended": timedelta(days=ended_ago), "free": timedelta(days=free_in)})
    world.behind.execute(
        "insert into aiflow.callback (submission_id, state, url, created_at, next_at, delivered_at)"
        " values (%s, 'succeeded', 'https://there', now() - interval '90 days', null, now())",
        [made.submission_id],
    )
    taken = take(world.ledger, an_attempt(an_execution(run_id=made.run_id)))
    world.ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    world.pass_time(90 * DAY)
    said = clean()
    assert said["left"] == ({} if goes else {"submission": 1})
    assert rows(world)["execution"] == (0 if goes else 1)
    assert (submissions.get(made.submission_id) is None) is goes
    assert rows(world)["callback"] == (0 if goes else 1)


def test_a_submission_stays_while_an_effect_of_its_run_does(
    world: RecoveryWorld, airflow: Runs, clean: Clean, submissions: PostgresSubmissions
) -> None:
    """Else the next use of the key would be the same run again, and find its effect done."""
    request = SubmissionRequest("ann", DAG, {}, key="order 1")
    made, _ = submissions.submit(request, window_days=30)
    task(world, made.run_id).run(Calls())
    world.behind.execute(SUBMISSION_ENDED, {"ended": timedelta(days=90), "free": timedelta(days=-1)})
    world.pass_time(90 * DAY)
    clean()
    again, new = submissions.submit(request, window_days=30)
    assert new
    assert again.run_id != made.run_id
    assert again.state is SubmissionState.QUEUED


def test_a_budget_goes_with_its_task_and_not_while_a_call_is_at_work(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    ended(world, "call")
    clean()
    assert rows(world)["budget"] == 1
    world.behind.execute("update aiflow.budget_hold set until = now() - interval '1 hour'")
    assert clean()["removed"]["budget"] == 1
    assert rows(world) == Counter()


# --- Airflow ---


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_where_airflow_refuses_nothing_is_removed(
    world: RecoveryWorld, airflow: Runs, clean: Clean, status: int
) -> None:
    fill(world)
    world.pass_time(90 * DAY)
    airflow.refuse = status
    assert str(status) in clean(code=1)["message"]
    assert rows(world)["execution"] == 3


def test_a_404_that_is_not_airflows_own_does_not_mean_that_a_run_is_gone(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    """A proxy's, say, while the server behind it restarts."""
    fill(world, runs=1)
    world.pass_time(90 * DAY)
    airflow.runs[DAG] = ["old_1"]
    airflow.proxy_404 = True
    assert "404" in clean(code=1)["message"]
    assert rows(world)["execution"] == 1


@pytest.mark.parametrize("others", [0, 3])
def test_a_run_whose_id_holds_a_slash_is_not_taken_for_gone(
    world: RecoveryWorld, airflow: Runs, clean: Clean, others: int
) -> None:
    """The API has no address for it, and answers 404 although the run is there."""
    fill(world, run="team/", runs=1)
    fill(world, runs=others)
    world.pass_time(90 * DAY)
    airflow.runs[DAG] = ["team/1"]
    assert clean()["left"] == {"run": 1}
    assert rows(world)["execution"] == 1


def test_where_airflow_is_away_or_unknown_or_another_nothing_is_removed(
    world: RecoveryWorld, airflow: Runs, clean: Clean, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(world)
    world.pass_time(90 * DAY)
    monkeypatch.setenv(api_address.VARIABLE, connection("http://127.0.0.1:1"))
    assert "does not answer" in clean(code=1)["message"]
    monkeypatch.setenv(api_address.VARIABLE, connection(airflow.url, "another"))
    assert "401" in clean(code=1)["message"]
    monkeypatch.delenv(api_address.VARIABLE)
    assert api_address.VARIABLE in clean("--home", str(tmp_path), code=1)["message"]
    with serving(AirflowStandIn(DAG, "", [], {})) as stranger:
        monkeypatch.setenv(api_address.VARIABLE, connection(stranger))
        assert "404" in clean(code=1)["message"]
    assert rows(world)["execution"] == 3


def test_a_dag_that_airflow_does_not_know_is_cleaned_by_its_name_alone(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    fill(world)
    fill(world, run="other_", dag="other")
    world.pass_time(90 * DAY)
    del airflow.runs[DAG], airflow.runs
    airflow.runs = {}
    said = clean()
    assert (said["left"], said["unknown_dags"], said["removed"]) == ({"dag": 6}, [DAG, "other"], {})
    assert clean("--dag-id", DAG)["removed"]["execution"] == 3
    assert rows(world)["execution"] == 3


def test_a_run_is_not_missed_where_others_are_deleted_while_it_is_listed(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    fill(world, runs=30)
    world.pass_time(90 * DAY)
    airflow.page = 10
    airflow.runs[DAG] = [f"gone_{n}" for n in range(5)] + [f"old_{n}" for n in range(1, 31)]

    def delete(offset: int) -> None:
        if offset == 9:
            airflow.runs[DAG] = [one for one in airflow.runs[DAG] if not one.startswith("gone_")]

    airflow.before_page = delete
    assert clean()["left"] == {"run": 30}
    assert rows(world)["execution"] == 30


def test_runs_that_the_reader_may_not_see_are_not_taken_for_gone(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    fill(world)
    world.pass_time(90 * DAY)
    airflow.runs[DAG] = ["old_1", "old_2", "old_3"]
    airflow.unlisted = {"old_2", "old_3"}
    assert "does not list it" in clean(code=1)["message"]
    assert rows(world)["execution"] == 3


def test_few_runs_are_asked_for_one_by_one_and_many_are_listed(
    world: RecoveryWorld, airflow: Runs, clean: Clean
) -> None:
    airflow.runs[DAG] = [f"new_{n}" for n in range(1_000)]
    fill(world, runs=2)
    world.pass_time(90 * DAY)
    clean("--dry-run")
    assert len(airflow.requests) < 8
    fill(world, run="more_", runs=200)
    world.pass_time(90 * DAY)
    airflow.requests.clear()
    clean("--dry-run")
    assert 10 <= len(airflow.requests) < 20


# --- killed, and two at once ---


def test_killed_between_two_batches_it_leaves_whole_executions(
    world: RecoveryWorld, airflow: Runs, clean: Clean, tmp_path: Path
) -> None:
    fill(world, runs=1_200, steps=2)
    world.pass_time(90 * DAY)
    with psycopg.connect(world.behind.info.dsn, password=world.behind.info.password) as blocker:
        # The second batch waits for this row: there it is killed.
        blocker.execute(
            "update aiflow.label set value = 'b' where execution_id ="
            " (select execution_id from aiflow.execution order by 1 offset 700 limit 1)"
        )
        command = [sys.executable, "-m", "airflow_aiflow.cli", "db", "clean", "--before", "30d", "--yes"]
        child = subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ), stderr=subprocess.PIPE, text=True)
        try:
            assert child.stderr is not None
            assert any("500/1200" in line for line in child.stderr)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(30)
    deadline = threading.Event()
    while world.behind.execute(
        "select 1 from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        " and state = 'active' and query like '%delete from aiflow%'"
    ).fetchall():
        assert not deadline.wait(0.05)
    left = rows(world)
    assert left == Counter(execution=700, attempt=700, step=1_400, event=1_400, label=700)
    clean()
    assert rows(world) == Counter()


def test_two_at_once_do_no_harm(world: RecoveryWorld, addresses: tuple[str, str], airflow: Runs) -> None:
    fill(world, runs=1_500, steps=3)
    world.pass_time(90 * DAY)
    removed: Counter[str] = Counter()
    errors: list[BaseException] = []
    both = threading.Barrier(2)

    def work() -> None:
        try:
            api = AirflowApi(airflow.url, login="admin", password=PASSWORD)
            with closing(api), closing(PostgresClean.connect(addresses[0])) as ledger:
                scope = Scope(ledger.now() - timedelta(days=30))
                plan = ledger_clean.make_plan(ledger, runs := AirflowRuns(api), scope)
                both.wait(60)
                removed.update(ledger_clean.remove(ledger, runs, plan, scope))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    assert rows(world) == Counter()
    assert removed["execution"] == 1_500
    assert removed["step"] == 4_500


# --- what it costs ---

#: What is asked for a page or a batch.
BATCHES: tuple[LiteralString, ...] = (
    "clean_page",
    "clean_held",
    "clean_count",
    "clean_effects",
    "clean_former",
    "clean_lock",
    "clean_steps",
    "clean_events",
    "clean_failed_items",
    "clean_wasted_calls",
    "clean_effects_remove",
    "clean_rest",
)


def test_no_statement_of_a_batch_reads_a_big_table(world: RecoveryWorld, airflow: Runs) -> None:
    fill(world, runs=10_000, steps=3)
    many.fill(world.behind, json.dumps(OWNER.to_plain()), past=12_000)
    world.behind.execute("analyze")
    ids = [row[0] for row in world.behind.execute("select execution_id from aiflow.execution order by 1 limit 500")]
    values: dict[str, Any] = {
        "ids": ids,
        "before": world.behind.execute("select now() + interval '1 hour'").fetchall()[0][0],
        "dag_ids": None,
        "after": 0,
        "most": 500,
        "former": ids[:2],
        "effects": ids[:5],
        "writers": ids[:5],
    }
    for name in BATCHES:
        text = statement(name)
        with world.behind.transaction(force_rollback=True):
            [(plans,)] = world.behind.execute("explain (analyze, format json) " + text, values).fetchall()
        for node in scans(plans[0]["Plan"]):
            assert not reads_all(node), (name, node)
            assert node["Actual Rows"] * node["Actual Loops"] <= 5_001, (name, node)
        if world.behind.info.server_version >= 160_000:  # the plan that a server keeps, for any values
            for number, value in enumerate(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)), 1):
                text = text.replace(f"%({value})s", f"${number}")
            [(plans,)] = world.behind.execute("explain (generic_plan, format json) " + text).fetchall()
            assert not any(reads_all(node) for node in scans(plans[0]["Plan"])), (name, plans)
