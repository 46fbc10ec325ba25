"""What Airflow does by itself about the same hits: its own defaults, and no recovery DAG."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.recovery.expected import Case, Seen
from tests.recovery.settings import start_world
from tests.recovery.situations import PLAYS
from tests.recovery.world import World

#: With these the whole scheduler dies, and with it what the others measure.
ALONE_IN_A_STACK = frozenset({"scheduler_killed"})
#: As many as there are executor slots: most of their time is Airflow's time-out.
AT_ONCE = 3


def measure_alone(cases: Sequence[Case], folder: Path) -> dict[str, str]:
    """
    Play cases without recovery.

    :param cases: that can be.
    :param folder: for everything that they leave.
    :return: key -> what was seen, in words.
    """
    found: dict[str, str] = {}
    together = [case for case in cases if case.key not in ALONE_IN_A_STACK]
    if together:
        with start_world(folder / "together", "default", recovery=False) as world, ThreadPoolExecutor(AT_ONCE) as pool:
            found |= dict(pool.map(lambda case: (case.key, _play(case, world)), together))
    for case in cases:
        if case.key in ALONE_IN_A_STACK:
            with start_world(folder / case.key, "default", recovery=False) as world:
                found[case.key] = _play(case, world)
    return found


def _play(case: Case, world: World) -> str:
    try:
        seen = PLAYS[case.key](world)
    except Exception as error:  # Airflow alone may leave a case in any state
        return f"{type(error).__name__}: {error}"
    return in_words(seen)


def in_words(seen: Seen) -> str:
    """
    Tell what Airflow did.

    :param seen: of one case.
    """
    when = "never goes on" if seen.go_on is None else f"goes on after {seen.go_on:.0f} s"
    if seen.go_on is None and seen.noticed is not None:
        when = f"ended by Airflow after {seen.noticed:.0f} s, {when}"
    return f"{when}; {seen.state}, {seen.effects} effects, {seen.calls} calls"
