"""Of each end is told that somebody waits for: of what came back, and of what stands behind many that run for days."""

from __future__ import annotations

import pytest

from tests.integration.api.conftest import World

pytestmark = pytest.mark.timeout(120)


def told(world: World) -> list[str]:
    rows = world.submissions._ask("select state::text from aiflow.callback order by created_at", {})
    return [row[0] for row in rows]


def test_what_recovery_brought_back_is_told_again_though_nobody_looks(world: World) -> None:
    world.submit()
    world.sql("update aiflow.submission set callback_url = 'https://hooks.example.com/'")
    run = next(iter(world.runs.runs.values()))
    for run.state in ("failed", "running", "success"):
        world.service.press_on()
    assert told(world) == ["failed", "succeeded"]
    assert world.service.press_on() == 0


def test_long_ones_keep_no_other_end_from_being_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_aiflow.durable.submitting.PRESSED", 2)
    views = [world.submit(idempotency_key=f"k{number}").json() for number in range(4)]
    world.sql("update aiflow.submission set callback_url = 'https://hooks.example.com/'")
    world.runs.runs[views[-1]["run_id"]].state = "success"
    for _ in range(100):
        world.service.press_on()
        if told(world):
            break
    assert told(world) == ["succeeded"]
