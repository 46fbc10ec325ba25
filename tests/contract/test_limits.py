"""What every keeper of limits must hold: over all workers and in any minute, never more than the limit allows."""

from __future__ import annotations

import random
from uuid import UUID, uuid4

import pytest

from airflow_aiflow.durable.limit import SHARE_SECONDS, Lent, Limit, LimitLedger, Wish
from airflow_aiflow.exceptions import LedgerError
from tests.contract.ledger_world import World

MINUTE = 60.0


@pytest.fixture
def limits(world: World) -> LimitLedger:
    return world.ledger.limits


@pytest.fixture
def name(limits: LimitLedger) -> str:
    return f"limit {uuid4()}"


def borrow(limits: LimitLedger, name: str, worker: UUID | None = None, **wish: int) -> Lent:
    lent = limits.exchange(name, worker or uuid4(), Wish(**wish), ttl=SHARE_SECONDS)
    assert lent is not None
    return lent


def test_a_limit_that_is_not_set_lends_nothing(limits: LimitLedger, name: str) -> None:
    assert limits.exchange(name, uuid4(), Wish(want_requests=1), ttl=SHARE_SECONDS) is None
    assert limits.remove_limit(name) is False


def test_a_limit_is_set_changed_listed_and_removed(limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, rpm=5))
    limits.set_limit(Limit(name, tpm=9, concurrency=2))
    assert [view.limit for view in limits.limits() if view.limit.name == name] == [Limit(name, None, 9, 2)]
    borrow(limits, name, want_tokens=3, want_slots=1, waiting=1)
    assert limits.remove_limit(name) is True
    assert [view for view in limits.limits() if view.limit.name == name] == []


def test_a_name_that_no_ledger_can_store_is_refused(limits: LimitLedger) -> None:
    with pytest.raises(LedgerError):
        limits.set_limit(Limit("a\x00b", rpm=1))


def test_what_has_no_limit_is_any_number(limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, rpm=5))
    lent = borrow(limits, name, want_requests=2, want_tokens=10**9, want_slots=99, waiting=2)
    assert (lent.requests, lent.tokens, lent.slots) == (2, None, None)
    assert lent.limit == Limit(name, rpm=5)


def test_workers_share_the_minute(limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, rpm=10))
    first, second = uuid4(), uuid4()
    assert borrow(limits, name, first, want_requests=7, waiting=0).requests == 7
    assert borrow(limits, name, second, want_requests=7).requests == 3
    # The first one used 4 and wants no more: 3 go back, and what was used counts for a minute.
    assert borrow(limits, name, first, used_requests=4).requests == 0
    assert borrow(limits, name, second, keep_requests=3, want_requests=99).requests == 6


def test_what_was_used_counts_for_a_minute(world: World, limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, rpm=10))
    worker = uuid4()
    borrow(limits, name, worker, want_requests=10)
    borrow(limits, name, worker, used_requests=10)
    world.pass_time(MINUTE - 1)
    assert borrow(limits, name, want_requests=1).requests == 0
    world.pass_time(2.1)  # rounded up to whole seconds, never down
    assert borrow(limits, name, want_requests=99).requests == 10


def test_a_dead_workers_share_counts_until_it_can_have_been_spent_no_more(
    world: World, limits: LimitLedger, name: str
) -> None:
    limits.set_limit(Limit(name, rpm=10, concurrency=2))
    borrow(limits, name, want_requests=10, want_slots=2, in_flight=2, waiting=1)
    assert borrow(limits, name, want_requests=1, want_slots=1, waiting=1).slots == 0
    world.pass_time(SHARE_SECONDS + 0.1)
    lent = borrow(limits, name, want_requests=1, want_slots=2, waiting=2)
    assert (lent.requests, lent.slots) == (0, 2), "its calls are over for us; its requests may have been made just now"
    world.pass_time(MINUTE)
    assert borrow(limits, name, want_requests=99).requests == 10


def test_calls_at_once(limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, concurrency=3))
    first, second = uuid4(), uuid4()
    assert borrow(limits, name, first, want_slots=2, waiting=2).slots == 2
    assert borrow(limits, name, second, want_slots=4, waiting=4).slots == 1
    assert borrow(limits, name, first, in_flight=1, want_slots=1).slots == 1
    assert borrow(limits, name, second, in_flight=1, want_slots=4, waiting=3).slots == 2
    limits.set_limit(Limit(name, concurrency=1))
    assert borrow(limits, name, second, in_flight=2, want_slots=4, waiting=2).slots == 2, "what is at work goes on"
    assert borrow(limits, name, first, want_slots=1, waiting=1).slots == 0


def test_tokens_of_calls_in_flight_are_held(world: World, limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, tpm=1000))
    first = uuid4()
    assert borrow(limits, name, first, want_tokens=600).tokens == 600
    assert borrow(limits, name, want_tokens=600).tokens == 400
    # The call took 300 of the 600; another one is at work with 100.
    lent = borrow(limits, name, first, used_tokens=300, held_tokens=100, in_flight=1, want_tokens=0)
    assert lent.tokens == 0
    assert borrow(limits, name, want_tokens=999).tokens == 1000 - 400 - 400
    world.pass_time(MINUTE + SHARE_SECONDS + 1.1)
    assert borrow(limits, name, want_tokens=999).tokens == 999


def test_who_waits_gets_a_fair_part(limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, rpm=100))
    greedy, poor = uuid4(), uuid4()
    borrow(limits, name, greedy, want_requests=100, waiting=50)
    assert borrow(limits, name, poor, want_requests=4, waiting=4).requests == 0
    lent = borrow(limits, name, greedy, used_requests=40, keep_requests=10, want_requests=100, waiting=50)
    assert lent.others_wait
    assert lent.requests == 30, "half of what is free, for two wait"
    assert borrow(limits, name, poor, want_requests=4, waiting=4).requests == 4


def test_a_view_shows_what_counts(limits: LimitLedger, name: str) -> None:
    limits.set_limit(Limit(name, rpm=100, tpm=1000, concurrency=9))
    borrow(limits, name, used_requests=2, used_tokens=30, want_requests=5, want_tokens=70, want_slots=3, waiting=3)
    [view] = [view for view in limits.limits() if view.limit.name == name]
    assert (view.used_requests, view.used_tokens, view.slots, view.workers, view.waiting) == (7, 100, 3, 1, 3)


def test_no_minute_ever_holds_more_than_the_limit(world: World, limits: LimitLedger, name: str) -> None:
    """Workers borrow, call, die and lose answers at random moments; calls are made up to the last moment of a share."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    limits.set_limit(Limit(name, rpm=20))
    now, made = 0.0, []
    #: worker -> requests it has, until when, used since it told.
    workers: dict[UUID, tuple[int, float, int]] = {uuid4(): (0, 0.0, 0) for _ in range(4)}
    for _ in range(120):
        worker = dice.choice(list(workers))
        has, until, used = workers[worker]
        if dice.random() < 0.5:
            wish = Wish(used_requests=used, want_requests=dice.randrange(12), waiting=dice.randrange(3))
            lent = limits.exchange(name, worker, wish, ttl=SHARE_SECONDS)
            assert lent is not None
            assert lent.requests is not None
            lost = dice.random() < 0.1
            workers[worker] = (0, 0.0, used) if lost else (lent.requests, now + SHARE_SECONDS, 0)
        elif dice.random() < 0.2:
            # Nobody will hear of it again, and it calls up to the last moment of its share.
            made += [until - 0.01] * has if now < until else []
            del workers[worker]
            workers[uuid4()] = (0, 0.0, 0)
        elif has and now < until:
            calls = dice.randrange(1, has + 1)
            made += [now] * calls
            workers[worker] = (has - calls, until, used + calls)
        step = dice.choice([0.0, 0.0, 0.2, 1.0, 3.0, 9.0])
        if step:
            world.pass_time(step)
        now += step
    assert len(made) > 10
    for start in made:
        # What the test itself takes between two of its clock's moves is not counted in `now`.
        assert sum(start <= call < start + MINUTE - 5 for call in made) <= 20
