"""A run of many mapped tasks: each event's id stays short enough for a header, and leads on from exactly there."""

from __future__ import annotations

import json
from typing import Any

from airflow_aiflow.durable.event_cursor import Cursor, whole
from tests.integration.api.conftest import URL, World

TASKS = 300

FILL = """
with made as (
    insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index)
    select sha256(convert_to(s.run_id || n, 'UTF8')), s.dag_id, s.run_id, 'work', n
    from aiflow.submission s, generate_series(0, 299) n
    returning execution_id, fence
),
tried as (
    insert into aiflow.attempt (
        execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number, sign, owner
    )
    select execution_id, fence, 1, gen_random_uuid(), 1, 0, 0, 0, 'first', '{}' from made
)
insert into aiflow.event (execution_id, fence, seq, kind, data)
select execution_id, fence, seq, 'step', convert_to('{"v":1}', 'UTF8') from made, generate_series(1, 3) seq
"""


def followed(world: World, view: dict[str, Any], after: str = "") -> list[tuple[str, str]]:
    headers = {"Last-Event-ID": after} if after else {}
    text = world.client.get(f"{view['links']['self']}/events", headers=headers).text
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines() if ": " in line)
        if fields.get("event") == "event":
            data = json.loads(fields["data"])
            found.append((fields["id"], f"{data['map_index']}"))
    return found


def test_an_id_fits_a_header_and_leads_on_from_there(world: World) -> None:
    view = world.submit().json()
    world.sql(FILL)
    world.runs.runs[view["run_id"]].state = "success"
    events = followed(world, view)
    assert len(events) == 3 * TASKS
    assert max(len(cursor) for cursor, _ in events) < 1_500
    for place in (10, 400, 700, len(events) - 1):
        rest = followed(world, view, events[place][0])
        assert [who for _, who in rest] == [who for _, who in events[place + 1 :]]
    assert len({cursor for cursor, _ in events}) == len(events)


def test_an_id_whose_base_is_gone_is_told(world: World) -> None:
    view = world.submit().json()
    refused = world.client.get(f"{view['links']['self']}/events", params={"after": f"{'0' * 32}~1.1.1"})
    assert (refused.status_code, "too old" in refused.json()["detail"]) == (422, True)
    world.cursors.keep("1.1.1")
    assert world.cursors.reap() == 0
    world.sql("update aiflow.cursor_base set used_at = used_at - interval '31 days'")
    assert world.cursors.reap() >= 1
    assert URL in view["links"]["self"]


def test_positions_that_a_client_made_up_are_not_kept(world: World) -> None:
    view = world.submit().json()
    world.sql(FILL)
    world.runs.runs[view["run_id"]].state = "success"
    made_up = [(10**9 + n, 1) for n in range(2_000)]
    after = str(Cursor(dict.fromkeys(made_up, 1)))
    text = world.client.get(f"{view['links']['self']}/events", params={"after": after}).text
    last = [line for line in text.splitlines() if line.startswith("id: ")][-1].removeprefix("id: ")
    read = whole(Cursor.read(last), world.cursors)
    assert len(read.places) == TASKS
    assert not read.places.keys() & set(made_up)
