"""A deadline ends also what is held before its run was made: nobody may ever let it go."""

from __future__ import annotations

import pytest

from airflow_aiflow.durable.submission import SubmissionState
from tests.integration.api.conftest import World

pytestmark = pytest.mark.timeout(120)


def test_what_is_held_unmade_is_cancelled_by_its_deadline(world: World) -> None:
    world.runs.away = True
    view = world.submit(deadline="2099-01-01T00:00:00Z").json()
    world.client.post(f"{view['links']['self']}:pause")
    world.runs.away = False
    assert world.service.heal(older_than=0) == 0
    world.sql("update aiflow.submission set deadline = clock_timestamp()")
    assert world.service.heal(older_than=0) == 1
    assert world.client.get(view["links"]["self"]).json()["state"] == SubmissionState.CANCELLED
    assert world.runs.runs == {}
