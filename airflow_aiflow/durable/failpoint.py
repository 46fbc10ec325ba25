"""
Named crash sites for tests.

``AIFLOW_FAILPOINT="after_intent@mail:2"`` kills the process with SIGKILL when the failpoint ``after_intent`` is passed
for the second time with the label ``mail``; without ``@label`` any label counts, without ``:n`` the first time. Off
unless the variable is set when the process starts; then a pass costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

#: Every crash site in the code; another name is an error at once, so that no test waits for a site that is gone.
NAMES: Final = frozenset(
    {
        "before_intent",
        "after_intent",
        "before_act",
        "after_act",
        "before_record",
        "after_record",
        "after_artifact_put",
        "before_finish",
        "after_finish",
        "before_ask",
        "after_ask",
        "before_reconcile",
        "after_reconcile",
        "after_decide",
    }
)

_lock = threading.Lock()
_passed = 0


def _parse(text: str | None) -> tuple[str, str | None, int] | None:
    if not text:
        return None
    site, _, count = text.partition(":")
    name, _, label = site.partition("@")
    if name not in NAMES:
        raise ValueError(f"AIFLOW_FAILPOINT names {name!r}; known: {', '.join(sorted(NAMES))}")
    return name, label or None, int(count or 1)


_armed = _parse(os.environ.get("AIFLOW_FAILPOINT"))


def failpoint(name: str, label: str = "") -> None:
    """
    Pass a crash site.

    :param name: one of ``NAMES``.
    :param label: the step's or effect's name.
    """
    if _armed is None or name != _armed[0] or (_armed[1] is not None and _armed[1] != label):
        return
    global _passed
    with _lock:
        _passed += 1
        due = _passed == _armed[2]
    if due:
        os.kill(os.getpid(), signal.SIGKILL)
