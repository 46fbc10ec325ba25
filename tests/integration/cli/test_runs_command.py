"""`aiflow runs show | steps | clear` over a real ledger; Airflow's API is a stand-in; a real one in tests/airflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_runs import PostgresRuns
from airflow_aiflow.testing import DurableTask
from tests.airflow_api import PASSWORD, TOKEN, AirflowStandIn, serving

DAG, ABOVE = "billing", digest_upstream([("split", -1, 1.0)])


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def run_id(request: pytest.FixtureRequest) -> str:
    """Give a run id as Airflow makes them, with a slash besides."""
    return f"manual/2026-11-29T18:00:00+00:00_{request.node.name}"


class Paid:
    """Answer model calls at a price."""

    def __init__(self) -> None:
        self.count = 0

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Answer."""
        self.count += 1
        return LlmAnswer("an answer", Usage("m", None, 100, 20, Decimal("0.004")))

    def close(self) -> None:
        """Keep nothing open."""


@pytest.fixture
def task(dsn: str, run_id: str) -> Iterator[Callable[..., DurableTask]]:
    ledger = PostgresLedger.connect(dsn)

    def make(task_id: str, map_index: int = -1, **options: Any) -> DurableTask:
        made = DurableTask(
            ledger=ledger,
            clock=SystemClock(),
            dag_id=DAG,
            run_id=run_id,
            task_id=task_id,
            map_index=map_index,
            models=Paid(),
            **options,
        )
        made.upstream_digest = ABOVE
        return made

    yield make
    ledger.close()


def send(number: str) -> str:
    return f"sent {number}"


def body(number: int) -> Callable[[Flow], None]:
    def work(flow: Flow) -> None:
        flow.llm("page", f"page {number}")
        flow.step("square", pow, number, 2)
        flow.effect("mail", send, str(number), key=f"{flow.lease.execution_pk}/{number}")

    return work


@pytest.fixture
def airflow(run_id: str, monkeypatch: pytest.MonkeyPatch, dsn: str) -> Iterator[AirflowStandIn]:
    """Give an Airflow that knows the run: split -> book[0..2] -> report."""
    instances = [
        ("split", -1, "success"),
        *(("book", index, "success") for index in range(3)),
        ("report", -1, "success"),
    ]
    stand_in = AirflowStandIn(DAG, run_id, instances, {"split": ["book"], "book": ["report"], "report": []})
    with serving(stand_in) as url:
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_LEDGER", dsn.replace("postgresql://", "postgres://"))
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", connection(url, login="admin", password=PASSWORD))
        yield stand_in


def connection(url: str, **fields: str) -> str:
    host, _, port = url.removeprefix("http://").partition(":")
    return json.dumps({"conn_type": "http", "host": host, "port": int(port), **fields})


@pytest.fixture
def booked(task: Callable[..., DurableTask], airflow: AirflowStandIn) -> list[DurableTask]:
    """Give three map indexes that have run."""
    tasks = [task("book", index) for index in range(3)]
    for index, one in enumerate(tasks):
        one.run(body(index))
    return tasks


@pytest.fixture
def aiflow(capsys: pytest.CaptureFixture[str], run_id: str) -> Callable[..., tuple[int, Any]]:
    """Give a way to run a command about the run, and its answer."""

    def aiflow(verb: str, *words: str, as_json: bool = True) -> tuple[int, Any]:
        code = main(["runs", verb, f"{DAG}/{run_id}", *words, *(["--json"] if as_json else [])])
        out = capsys.readouterr()
        return code, json.loads(out.out) if as_json else out.out + out.err

    return aiflow


def test_a_run_is_shown(booked: list[DurableTask], aiflow: Callable[..., tuple[int, Any]]) -> None:
    code, shown = aiflow("show")
    assert code == 0
    first = shown["executions"][0]
    assert (first["task_id"], first["map_index"], first["state"], first["heard"]) == ("book", 0, "succeeded", True)
    assert (first["steps"], first["model_calls"], first["cost"], first["generation"]) == (2, 1, "0.004", 1)
    assert first["effects"] == [{"name": "mail", "state": "succeeded", "count": 1, "open": []}]
    _, text = aiflow("show", as_json=False)
    assert "3 executions, 6 steps recorded, 3 model calls, $0.0120" in text
    assert "book[2]" in text


def test_the_labels_of_a_task_are_shown_once(
    task: Callable[..., DurableTask], airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]]
) -> None:
    for index in range(2):
        task("book", index, labels={"team": "legal", "year": "2026"}).run(lambda flow: None)
    task("report").run(lambda flow: None)
    _, shown = aiflow("show")
    assert [one["labels"] for one in shown["executions"]] == [{"team": "legal", "year": "2026"}] * 2 + [{}]
    _, text = aiflow("show", as_json=False)
    assert text.count("labels of ") == 1
    assert "labels of book: team=legal, year=2026" in text


def test_steps_are_listed(booked: list[DurableTask], aiflow: Callable[..., tuple[int, Any]]) -> None:
    code, shown = aiflow("steps", "--task", "book[1]")
    assert code == 0
    assert [(one["name"], one["kind"], one["map_index"], one["attempt"]) for one in shown["steps"]] == [
        ("page", "llm", 1, 1),
        ("square", "step", 1, 1),
    ]
    assert len(aiflow("steps")[1]["steps"]) == 6
    _, text = aiflow("steps", "--task", "book[1]", as_json=False)
    assert "100+20" in text


def test_an_unknown_run_is_told(airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]]) -> None:
    for verb in ("show", "steps"):
        code, answer = aiflow(verb)
        assert (code, answer["error"]) == (1, "RunNotFoundError")
    airflow.run_id = "another"
    code, answer = aiflow("clear")
    assert (code, answer["error"]) == (1, "RunNotFoundError")
    assert airflow.cleared == []


@pytest.mark.parametrize("words", [["billing"], ["/run"], ["billing/"], ["billing/r", "--task", "a["]])
def test_what_names_no_run_or_task_is_a_wrong_command_line(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "clear", *words])
    assert ended.value.code == 2


def test_a_preview_of_the_top(
    booked: list[DurableTask], airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]]
) -> None:
    airflow.assets = [
        {
            "uri": "s3://reports/tickets",
            "scheduled_dags": [{"dag_id": "one"}, {"dag_id": "two"}],
            "producing_tasks": [{"dag_id": DAG, "task_id": "report"}],
        },
        {"uri": "s3://other", "scheduled_dags": [], "producing_tasks": [{"dag_id": "other", "task_id": "report"}]},
    ]
    code, found = aiflow("clear", "--preview", "--task", "book", "--downstream")
    assert code == 0
    book, report = found["tasks"]
    assert (book["verdict"], book["map_indexes"]) == ("succeeded -> new generation", [0, 1, 2])
    assert (book["model_calls_again"], book["cost_again"], book["effects_kept"]) == (3, "0.012", {"mail": 3})
    assert (report["durable"], report["verdict"]) == (False, "never ran durable: Airflow runs it again as always")
    assert found["assets"] == [{"uri": "s3://reports/tickets", "triggers_dags": 2}]
    assert airflow.cleared == [], "a preview changes nothing"
    _, text = aiflow("clear", "--preview", "--task", "book", "--downstream", as_json=False)
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "book[0..2]"
    assert "model calls run again 3 (about $0.01)" in lines[0]
    assert lines[0].endswith("effects kept: 3 mail")
    assert any("s3://reports/tickets will be emitted again -> triggers 2 DAGs" in line for line in lines)
    assert "in doubt  none" in text
    assert "--resume (0 model calls again)" in text


def test_a_preview_below_the_top(booked: list[DurableTask], aiflow: Callable[..., tuple[int, Any]]) -> None:
    _, found = aiflow("clear", "--preview")
    [book] = [line for line in found["tasks"] if line["task_id"] == "book"]
    assert book["verdict"] == "succeeded -> resume (below the top of the clear)"
    assert (book["model_calls_again"], book["model_calls_recorded"]) == (0, 3)


@pytest.mark.parametrize(
    ("wish", "again", "verdict"),
    [("--fresh", 3, "succeeded -> new generation"), ("--resume", 0, "succeeded -> resume")],
)
def test_a_preview_of_a_wish(
    booked: list[DurableTask], aiflow: Callable[..., tuple[int, Any]], wish: str, again: int, verdict: str
) -> None:
    _, found = aiflow("clear", "--preview", wish)
    [book] = [line for line in found["tasks"] if line["task_id"] == "book"]
    assert (book["verdict"], found["model_calls_again"]) == (verdict, again)


def test_a_preview_tells_what_the_attempt_then_does(
    task: Callable[..., DurableTask], airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]]
) -> None:
    """The same rule twice: what the preview says of each task is what its next attempt does."""
    words: list[dict[str, Any]] = [{}, {"on_clear": "resume"}, {"on_clear": "fresh"}, {"hears": False}, {"fails": True}]
    tasks = []
    for index, options in enumerate(words):
        one = task("book", index, **{k: v for k, v in options.items() if k == "on_clear"})
        one.hears = options.get("hears", True)

        def work(flow: Flow, index: int = index, fails: bool = options.get("fails", False)) -> int:
            body(index)(flow)
            if fails and flow.attempt == 1:
                raise ValueError("the code's own error")
            return flow.generation

        if options.get("fails"):
            with pytest.raises(ValueError, match="own"):
                one.run(work)
        else:
            one.run(work)
        tasks.append((one, work))
    airflow.instances = [("book", index, "success") for index in range(len(words))]
    _, found = aiflow("clear", "--preview")
    said = {index: line["new_generation"] for line in found["tasks"] for index in line["map_indexes"]}
    did = {}
    for index, (one, work) in enumerate(tasks):
        one.cleared()
        did[index] = one.run(work) == 2
    assert said == did == {0: True, 1: False, 2: True, 3: False, 4: False}


@pytest.mark.parametrize(("wish", "generation", "calls"), [("--fresh", 2, 2), ("--resume", 1, 1)])
def test_a_wish_reaches_the_next_attempt_alone(
    booked: list[DurableTask],
    airflow: AirflowStandIn,
    aiflow: Callable[..., tuple[int, Any]],
    wish: str,
    generation: int,
    calls: int,
) -> None:
    code, answer = aiflow("clear", "--task", "book[1]", wish)
    assert (code, answer["cleared"]) == (0, [["book", 1]])
    [cleared] = airflow.cleared
    assert cleared["task_ids"] == [["book", 1]]
    chosen = booked[1]
    chosen.cleared()
    # The wish decides, whatever ran above, and although a success was seen.
    assert chosen.run(lambda flow: (body(1)(flow), flow.generation))[1] == generation
    assert chosen.models.count == calls  # type: ignore[attr-defined]
    chosen.cleared()
    chosen.upstream_digest = None
    assert chosen.run(lambda flow: (body(1)(flow), flow.generation))[1] == generation, "the next clear wishes nothing"


def test_a_wish_counts_where_a_task_is_cleared_while_it_runs(
    booked: list[DurableTask], aiflow: Callable[..., tuple[int, Any]]
) -> None:
    """Then the clear number alone may have grown when the next attempt starts."""
    aiflow("clear", "--task", "book[0]", "--fresh")
    one = booked[0]
    tries = one._next.max_tries
    one.cleared()
    one._next = one._next.__class__(**{**{n: getattr(one._next, n) for n in one._next.__slots__}, "max_tries": tries})
    assert one.run(lambda flow: flow.generation) == 2


def test_a_refused_clear_leaves_no_wish(
    booked: list[DurableTask], airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]]
) -> None:
    airflow.before_clear = lambda: 409
    code, answer = aiflow("clear", "--fresh")
    assert (code, answer["error"]) == (1, "AirflowRefusedError")
    booked[0].cleared()
    booked[0].upstream_digest = None
    assert booked[0].run(lambda flow: flow.generation) == 1


def test_a_wish_whose_clear_nobody_heard_of_does_not_wait_for_ever(booked: list[DurableTask], dsn: str) -> None:
    """The command was killed, or Airflow's answer lost: what a person clears next month is another clear."""
    runs = PostgresRuns.connect(dsn)
    [pk, other, *_] = [view.execution_pk for view in runs.executions(DAG, booked[0].execution.run_id)]
    runs.wish([pk, other], "fresh")
    runs.close()
    with psycopg.connect(dsn) as connection_:
        connection_.execute("update aiflow.wish set at = at - interval '11 minutes' where execution_id = %s", (pk,))
    for one, generation in zip(booked, (1, 2), strict=False):
        one.cleared()
        one.upstream_digest = None
        assert one.run(lambda flow: flow.generation) == generation


def test_a_task_that_the_run_does_not_have_clears_nothing(
    booked: list[DurableTask], airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]]
) -> None:
    """C18: Airflow takes an unknown id for an empty selection, and sets the run to running."""
    code, answer = aiflow("clear", "--task", "bok")
    assert (code, answer["error"]) == (1, "RunNotFoundError")
    assert "it has book, report, split" in answer["message"]
    assert airflow.cleared == []


def test_a_task_that_waits_for_an_answer_is_not_cleared(
    booked: list[DurableTask], airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]], dsn: str
) -> None:
    with psycopg.connect(dsn) as connection_:
        pk = connection_.execute(
            "update aiflow.execution set state = 'paused', finished_at = null, result = null, result_sha256 = null, "
            "seal = null where run_id = %s and map_index = 0 returning execution_id",
            (booked[0].execution.run_id,),
        ).fetchone()
        assert pk is not None
        number = connection_.execute(
            "insert into aiflow.question (identity, kind, name, execution_id, subject, body, options, assigned_users) "
            "values (sha256(%s), 'ask', 'sure', %s, 'Send it?', '', '{Yes,No}', '{}') returning number",
            (booked[0].execution.run_id.encode(), pk[0]),
        ).fetchone()
    assert number is not None
    code, answer = aiflow("clear", "--task", "book")
    assert (code, answer["error"]) == (1, "ClearRefusedError")
    assert f"waits for a person's answer to #{number[0]}: Send it?" in answer["message"]
    assert airflow.cleared == []
    assert aiflow("clear", "--preview")[1]["waiting"] == [{"number": number[0], "subject": "Send it?"}]
    assert aiflow("clear", "--task", "book", "--force")[0] == 0


def test_no_airflow_is_told(monkeypatch: pytest.MonkeyPatch, aiflow: Callable[..., tuple[int, Any]], dsn: str) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_AIFLOW_API", raising=False)
    code, answer = aiflow("clear", "--home", "/nonexistent", "--dsn", dsn)
    assert (code, answer["error"]) == (1, "AiflowConfigError")
    assert "AIRFLOW_CONN_AIFLOW_API" in answer["message"]
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", connection("http://127.0.0.1:1", login="a", password="b"))
    code, answer = aiflow("clear", "--dsn", dsn)
    assert (code, answer["error"]) == (1, "AirflowUnavailableError")


def test_a_token_needs_no_login(
    booked: list[DurableTask],
    airflow: AirflowStandIn,
    aiflow: Callable[..., tuple[int, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", connection(airflow.url, password=TOKEN))
    assert aiflow("clear", "--preview")[0] == 0
    assert airflow.logins == 0
    monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", connection(airflow.url, password="another"))
    code, answer = aiflow("clear", "--preview")
    assert (code, answer["error"]) == (1, "AirflowRefusedError")


def test_a_long_run_is_read_page_by_page(
    airflow: AirflowStandIn, aiflow: Callable[..., tuple[int, Any]], run_id: str
) -> None:
    airflow.instances = [("book", index, "success") for index in range(250)]
    code, answer = aiflow("clear", "--task", "book[249]")
    assert (code, answer["cleared"]) == (0, [["book", 249]])
    pages = [one for one in airflow.requests if one.endswith("/taskInstances")]
    assert len(pages) == 3
