"""Many steps of siblings at once: the same ones that are found one by one."""

from __future__ import annotations

from airflow_aiflow.durable.record import SharedStep
from tests.contract.ledger_world import a_step
from tests.contract.test_ledger_siblings import Group, group

__all__ = ["group"]

PAGES = [a_step(f"page {number}") for number in range(6)]


def test_many_are_found_in_one_look_and_none_that_no_sibling_has(group: Group) -> None:
    first = group.record(0, *PAGES[:3])
    second = group.record(1, *PAGES[2:5])
    group.clear()
    mine = group.take(2).lease
    items = group.world.ledger.items
    found = {each.record.step_key: each for each in items.shared_steps(mine, [page.step_key for page in PAGES])}
    assert found.keys() == {page.step_key for page in PAGES[:5]}
    assert found[PAGES[0].step_key] == SharedStep(PAGES[0], first.lease.execution_pk, first.generation)
    assert found[PAGES[4].step_key].execution_pk == second.lease.execution_pk
    for page in PAGES:
        assert group.look(mine, page.step_key) == found.get(page.step_key)
    assert items.shared_steps(mine, []) == []
    assert len(items.shared_steps(mine, [PAGES[0].step_key] * 2)) == 1


def test_before_a_clear_none_is_found(group: Group) -> None:
    group.record(0, *PAGES)
    mine = group.take(1).lease
    assert group.world.ledger.items.shared_steps(mine, [page.step_key for page in PAGES]) == []
