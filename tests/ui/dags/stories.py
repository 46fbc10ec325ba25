"""
Pipelines whose runs the pages are looked at with: killed and resumed, in doubt, with dead letters, with many steps.

Each kills itself, once, by a real SIGKILL; that it did so already stands in a folder that comes with the run's conf.
"""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task

from airflow_aiflow import Flow

#: Never set: to take a while.
MOMENT = threading.Event()

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SOON = dt.timedelta(seconds=1)
#: A model with a public price; who answers is the stand-in.
MODEL = "openai:gpt-5-mini"
OPTIONS = {"schedule": None, "start_date": START, "default_args": {"retry_delay": SOON, "retries": 3}}
FOLDER = {"folder": Param(type="string")}


def given_folder() -> str:
    """Give the run's folder; no argument, for an effect's request is what people read."""
    return get_current_context()["params"]["folder"]


def die_once(folder: str, name: str) -> None:
    """Die at the first call of this name."""
    marker = Path(folder) / f"died-{name}"
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def split(number: int) -> str:
    """Take a moment."""
    MOMENT.wait(0.08 + number % 3 * 0.05)
    return f"Section {number}. The supplier delivers within {number + 3} days."


def check(notes: list[str], kill: bool) -> str:
    """Check the notes, and die half way at the first time."""
    MOMENT.wait(0.3)
    if kill:
        die_once(given_folder(), "check")
    return f"{len(notes)} notes, complete"


def book(ctx: object, summary: str) -> str:
    """Book the review."""
    MOMENT.wait(0.2)
    with (Path(given_folder()) / "booked.txt").open("a") as file:
        file.write("booked\n")
    return "booking 4711"


@dag(**OPTIONS, params={**FOLDER, "kill": Param(True, type="boolean")})
def contract_review():
    @task.durable
    def read(flow: Flow):
        return [flow.step(f"split section {number}", split, number) for number in range(1, 9)]

    @task.durable
    def assess(sections: list[str], flow: Flow, params=None):
        outline = flow.llm(
            "outline", "Outline this contract.\n\n" + "\n".join(sections), reuse=dt.timedelta(days=1), model_id=MODEL
        )
        prompts = [f"Is clause {n} of section {s} usual?" for s in range(8) for n in range(4)]
        notes = flow.llm_map("clause", prompts, max_workers=4, model_id=MODEL)
        flow.step("check", check, notes, params["kill"])
        for number, section in enumerate(sections[:5]):
            flow.llm("risk", f"Name the risk of this section.\n\n{section}\n{number}", model_id=MODEL)
        return flow.llm("summary", f"Summarise.\n\n{outline}\n" + "\n".join(notes), model_id=MODEL)

    @task.effect(key="review/{{ run_id }}", timeout=5)
    def file_review(ctx, summary):
        return book(ctx, summary)

    @task
    def publish(receipt: str):
        print(receipt)

    publish(file_review(assess(read())))


def charge(ctx: object) -> str:
    """Charge the card, and lose the process before anybody hears of it."""
    folder = given_folder()
    with (Path(folder) / "charged.txt").open("a") as file:
        file.write(f"{ctx.idempotency_key}\n")
    die_once(folder, "charge")
    return "charge 1"


@dag(**OPTIONS, params={**FOLDER, "invoice": Param("INV-1042", type="string")})
def invoice_payment():
    @task.durable
    def prepare(flow: Flow):
        return flow.llm("wording", "Write the text of a payment over 129 euros for a hosting invoice.", model_id=MODEL)

    @task.effect(key="invoice/{{ params.invoice }}", on_in_doubt="ask", timeout=1)
    def charge_card(ctx, invoice, cents, currency, text):
        return charge(ctx)

    charge_card("{{ params.invoice }}", 12_900, "EUR", prepare())


def read_row(number: int) -> int:
    """Read a row; some can't be read."""
    MOMENT.wait(0.01)
    if number % 40 == 17:
        raise ValueError(f"row {number} has no amount")
    return number * 2


@dag(**OPTIONS, params=FOLDER)
def nightly_import():
    @task.durable
    def load(flow: Flow):
        rows = flow.map("row", read_row, range(160), on_item_error="skip", max_item_attempts=1)
        return flow.step("sum", sum, [row for row in rows if row is not None])

    load()


def held(folder: str) -> str:
    """Be at work until the test lets go."""
    (Path(folder) / "begun").touch()
    while not (Path(folder) / "go").exists():
        MOMENT.wait(0.05)
    return "held"


@dag(**OPTIONS, params=FOLDER)
def overtaken():
    @task.durable(retries=0, lease=3)
    def work(flow: Flow, params=None):
        flow.step("hold", held, params["folder"])
        for number in range(10_000):
            flow.step("tick", split, number)

    work()


@dag(**OPTIONS, params={"steps": Param(10_000, type="integer")})
def many_steps():
    @task.durable
    def work(flow: Flow, params=None):
        for number in range(params["steps"]):
            flow.step(f"part {number % 50}", abs, number)

    work()


contract_review()
invoice_payment()
nightly_import()
overtaken()
many_steps()
