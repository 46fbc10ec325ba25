"""
The eight situations of the matrix: what Airflow and people do around a process that is hit.

Each gets the sites at which processes are hit, in order: all but the last in automatic retries before the situation
itself begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.crash.life import DONE, DOUBT, KILLED, Life, Process, until


class NotReachedError(Exception):
    """Say that a process did not come to the site at which it was to be hit."""


def _killed(life: Life, site: str) -> None:
    code = life.start(site).wait()
    if code != KILLED:
        raise NotReachedError(f"the attempt ended with {code} instead of being killed at {site}")


def _stopped(life: Life, site: str) -> Process:
    process = life.start(f"{site}=stop")
    code = process.wait(stopped=True)
    if code is not None:
        raise NotReachedError(f"the attempt ended with {code} instead of being stopped at {site}")
    return process


def _opening(life: Life, sites: Sequence[str]) -> None:
    for site in sites[:-1]:
        _killed(life, site)
        life.retried()


def retry(life: Life, sites: Sequence[str]) -> int:
    """Kill, then Airflow's automatic retry."""
    _opening(life, sites)
    _killed(life, sites[-1])
    life.retried()
    return life.run()


def clear_failed(life: Life, sites: Sequence[str]) -> int:
    """Kill with no retries left; a person clears the failed task."""
    _opening(life, sites)
    _killed(life, sites[-1])
    life.cleared()
    return life.run()


def clear_succeeded(life: Life, sites: Sequence[str]) -> int:
    """Kill, retry to the end; then a person clears the task, which has succeeded unless it is in doubt."""
    retry(life, sites)
    life.cleared()
    return life.run()


def clear_running(life: Life, sites: Sequence[str]) -> int:
    """A person clears the running task; its supervisor and it die there, so that only the clear number has grown."""
    _opening(life, sites)
    _killed(life, sites[-1])
    life.cleared_while_running()
    return life.run()


def marked_failed(life: Life, sites: Sequence[str]) -> int:
    """A person marks the running task failed and clears it at once; the old process is killed a heartbeat later."""
    _opening(life, sites)
    old = _stopped(life, sites[-1])
    try:
        life.cleared()
        new = life.start()
        until(lambda: life.wanted() or new.poll())
    finally:
        old.kill()
    return _to_the_end(life, new)


def made_again(life: Life, sites: Sequence[str]) -> int:
    """Kill; the run is deleted and triggered again under the same id."""
    _opening(life, sites)
    _killed(life, sites[-1])
    life.made_again()
    return life.run()


def double_clear(life: Life, sites: Sequence[str]) -> int:
    """Kill; clear; the second clear hits the new attempt at the same site, if it comes there, or else its success."""
    _opening(life, sites)
    _killed(life, sites[-1])
    life.cleared()
    life.run(sites[-1])
    life.cleared()
    return life.run()


def two_at_once(life: Life, sites: Sequence[str]) -> int:
    """The next try starts while the first is at the site; then both are at work."""
    _opening(life, sites)
    old = _stopped(life, sites[-1])
    try:
        life.retried()
        new = life.start()
        until(lambda: life.wanted() or new.poll())
        old.go_on()
        code = _to_the_end(life, new)
        old.wait()
    finally:
        old.kill()
    return code


def _to_the_end(life: Life, process: Process) -> int:
    code = process.wait()
    assert code is not None
    return life.go_on(code)


def word_given(life: Life) -> int:
    """After an end in doubt: a truthful person says on the command line what happened, then clears."""
    life.resolve()
    life.cleared()
    return life.run()


Situation = Callable[[Life, Sequence[str]], int]

#: In the order of the table's columns.
SITUATIONS: dict[str, Situation] = {
    "retry": retry,
    "clear_failed": clear_failed,
    "clear_succeeded": clear_succeeded,
    "clear_running": clear_running,
    "marked_failed": marked_failed,
    "made_again": made_again,
    "double_clear": double_clear,
    "two_at_once": two_at_once,
}

__all__ = ["DONE", "DOUBT", "SITUATIONS", "NotReachedError", "word_given"]
