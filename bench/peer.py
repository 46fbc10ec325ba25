"""The same recorded step in DBOS, on the same server and in the same run."""

from __future__ import annotations

import time
from typing import Any

from bench.timing import median, p95

#: Steps of one workflow before timing, and timed.
WARM, TIMED = 100, 1000


def dbos_step(dsn: str) -> dict[str, Any]:
    """
    Time DBOS's recorded step.

    :param dsn: of an empty database of its own.
    :return: milliseconds; ``None`` where the package is not installed.
    """
    try:
        from dbos import DBOS, DBOSConfig
    except ImportError:
        return {"dbos_step_ms": None}
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": dsn,
        "log_level": "ERROR",
    }
    DBOS(config=config)

    @DBOS.step()
    def compute(number: int, text: str) -> str:
        return text

    @DBOS.workflow()
    def workflow() -> list[float]:
        times = []
        for number in range(WARM + TIMED):
            began = time.perf_counter()
            compute(number, "x" * 200)
            times.append((time.perf_counter() - began) * 1000)
        return times[WARM:]

    DBOS.launch()
    try:
        times = workflow()
    finally:
        DBOS.destroy()
    return {"dbos_step_ms": {"median": median(times), "p95": p95(times)}}
