"""
Send figures through Airflow's own stats: StatsD, Datadog or OpenTelemetry, as ``[metrics]`` says.

The only module that knows them. Nothing here may fail an attempt or hold it up: what raises or is slow a few times is
given up for the rest of the process.

Airflow's way with tags is kept in mind: InfluxDB's form puts them into the name, of 250 characters at most, and drops
the whole figure, with a traceback in the task log, where a character does not suit it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache, partial

from airflow.sdk.observability import stats

#: Longest value of each tag: together with names and separators they stay under Airflow's 250 characters.
LONGEST = {"workflow": 110, "step": 60}
LONGEST_OTHER = 40

#: A send over UDP takes some microseconds; what takes longer than this waits for somebody.
SLOW_SECONDS = 0.25

#: One slow send may be the machine's doing.
MOST_TROUBLES = 3

_UNFIT = re.compile(r"[^a-zA-Z0-9_./-]")


class AirflowStats:
    """
    Implement the port ``Stats``.

    :param logger: hears once that figures are given up.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("airflow_aiflow.stats")
        self._troubles = 0

    def count(self, name: str, number: float, tags: Mapping[str, str]) -> None:
        """Add to a counter."""
        self._send(name, partial(stats.incr, name, number, tags=fit(tags)))  # type: ignore[arg-type]

    def timing(self, name: str, seconds: float, tags: Mapping[str, str]) -> None:
        """Note how long something took; it travels as a timer, in milliseconds like all of Airflow's."""
        self._send(name, partial(stats.timing, name, timedelta(seconds=seconds), tags=fit(tags)))

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge."""
        self._send(name, partial(stats.gauge, name, value, tags=fit(tags)))

    def _send(self, name: str, send: Callable[[], None]) -> None:
        if self._troubles >= MOST_TROUBLES:
            return
        began = time.monotonic()
        try:
            send()
        except Exception as error:  # a client of the deployment's own may raise anything
            self._trouble(f"{name}: {type(error).__name__}: {error}")
        else:
            took = time.monotonic() - began
            if took > SLOW_SECONDS:
                self._trouble(f"{name} took {took:.1f} s to send")

    def _trouble(self, what: str) -> None:
        self._troubles += 1
        if self._troubles == MOST_TROUBLES:
            self._log.warning("aiflow: no figures go to Airflow's stats from here on: %s", what)


def fit(tags: Mapping[str, str]) -> dict[str, str]:
    """
    Make tags fit for every backend.

    :param tags: any texts.
    :return: with other characters replaced, and long values cut and told apart by a short hash.
    """
    return {name: _fit(value, LONGEST.get(name, LONGEST_OTHER)) for name, value in tags.items()}


@lru_cache(maxsize=1024)
def _fit(text: str, longest: int) -> str:
    clean = _UNFIT.sub("_", text) or "_"
    if len(clean) <= longest:
        return clean
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{clean[: longest - 9]}-{digest}"
