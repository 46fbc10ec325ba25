"""The fine-tuning job of six hours runs as it stands: its empty function is filled in on a copy, nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_aiflow.exceptions import AttemptParked
from airflow_aiflow.testing import DurableTask, ManualClock
from tests.integration.airflow.conftest import Airflow
from tests.integration.airflow.test_jobs import filled

#: A provider as its client shows it; what reaches it is counted.
CLIENT = {
    "def client(): ...": """
from types import SimpleNamespace as Plain
jobs, seen, lost, looks_until_done = [], [], [], 180

def create(training_file, metadata):
    seen.append("create")
    jobs.append(Plain(id=f"ft-{len(jobs) + 1}", metadata=metadata, status="running", trained_tokens=0,
                      fine_tuned_model=None, training_file=training_file))
    if lost:
        raise lost.pop()
    return jobs[-1]

def retrieve(job_id):
    seen.append("retrieve")
    [job] = [job for job in jobs if job.id == job_id]
    job.trained_tokens += 1000
    if job.trained_tokens >= 1000 * looks_until_done:
        job.status, job.fine_tuned_model = "succeeded", f"model of {job.training_file}"
    return job

def client():
    return Plain(fine_tuning=Plain(jobs=Plain(create=create, retrieve=retrieve, list=lambda: jobs)))
""",
}


@pytest.fixture
def job(airflow: Airflow, tmp_path: Path) -> Iterator[tuple[ModuleType, Any]]:
    """Give the job's module and its one task."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.file import get_unique_dag_module_name

    file = tmp_path / "e_finetune.py"
    file.write_text(filled("e_finetune.txt", CLIENT))
    bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    module = sys.modules[get_unique_dag_module_name(str(file))]
    yield module, bag.dags["finetune"].get_task("train")
    del sys.modules[module.__name__]


def days_of(task: DurableTask, train: Any) -> tuple[Any, float]:
    """Come back after each park, as Airflow would; give the result and the hours that passed."""
    clock = task.clock
    assert isinstance(clock, ManualClock)
    began = clock.now()
    while True:
        try:
            result = task.run(lambda _flow: train.python_callable(ds="2026-01-05"))
        except AttemptParked as parked:
            clock.advance(parked.delay)
            task.same_again()
        else:
            return result, (clock.now() - began).total_seconds() / 3600


@pytest.mark.parametrize("lost", [False, True], ids=["plain", "the answer to the submission is lost"])
def test_six_hours_are_one_job_and_no_slot(job: tuple[ModuleType, Any], lost: bool) -> None:
    module, train = job
    if lost:
        module.lost.append(ConnectionResetError("the answer was lost"))
    task = DurableTask()
    result, hours = days_of(task, train)
    assert result == "model of s3://training/2026-01-05.jsonl"
    assert hours == pytest.approx(179 / 30)
    assert module.seen.count("create") == 1
    assert isinstance(task.clock, ManualClock)
    assert max(task.clock.waits, default=0) <= 30


def test_its_time_is_twelve_hours(job: tuple[ModuleType, Any]) -> None:
    module, train = job
    vars(module)["looks_until_done"] = 10_000
    task = DurableTask()
    with pytest.raises(Exception, match=r"ft-1 did not end within 43200 s of its submission"):
        days_of(task, train)
    assert module.seen.count("create") == 1
    assert module.seen.count("retrieve") == 361


def test_it_runs_in_airflow(airflow: Airflow) -> None:
    quick = {
        stub: body.replace("looks_until_done = [], [], [], 180", "looks_until_done = [], [], [], 1")
        for stub, body in CLIENT.items()
    }
    ran = airflow.run(filled("e_finetune.txt", quick), head="")
    assert ran.run.state == "success", ran.states
    assert ran.seen == ["create", "retrieve", "retrieve"]


ASYNC = """
import asyncio
from airflow_aiflow import AsyncFlow, current_flow

async def page(number):
    await asyncio.sleep(0)
    seen.append(number)
    return await current_flow().step("double", lambda n: 2 * n, number)

async def send(ctx, to):
    seen.append(to)

@dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
def the_dag():
    @task.durable
    async def report(to, flow: AsyncFlow, ds=None):
        pages = await asyncio.gather(*(flow.step("page", page, number) for number in range(3)))
        await flow.effect("mail", send, to, key="THE_DAG")
        return pages

    @task
    def read(pages):
        seen.append(pages)

    read(report("a@example.com"))

the_dag()
"""


def test_an_async_task_runs_in_airflow(airflow: Airflow) -> None:
    ran = airflow.run(ASYNC)
    assert ran.run.state == "success", ran.states
    assert sorted(ran.seen[:3]) == [0, 1, 2]
    assert ran.seen[3:] == ["a@example.com", [0, 2, 4]]
