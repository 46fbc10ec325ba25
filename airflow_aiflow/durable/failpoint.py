"""
Named crash sites for tests.

``AIFLOW_FAILPOINT="after_intent@mail:2"`` kills the process with SIGKILL when the failpoint ``after_intent`` is passed
for the second time with the label ``mail``; without ``@label`` any label counts, without ``:n`` the first time. With
``=stop`` at the end it is stopped there (SIGSTOP) and may be let go on. Off unless the variable is set when the
process starts, or a forked child arms itself; a pass then costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

#: Every crash site in a task; another name is an error at once, so that no test waits for a site that is gone.
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
        "before_dedup",
        "after_dedup_row",
        "before_commit",
        "after_commit",
        "before_leave",
        "after_leave",
    }
)

#: Crash sites outside of tasks: where recovery acts on one, where a submission becomes a run, is held or cancelled,
#: where an upload becomes an artifact.
OUTSIDE: Final = frozenset(
    {
        "after_mark",
        "after_set_state",
        "after_clear",
        "after_submit",
        "after_run_made",
        "after_cancel_asked",
        "after_hold_asked",
        "after_resume_asked",
        "before_run_ended",
        "after_upload_kept",
    }
)

#: Crash sites of a batch whose results are written outside of the artifact store.
BATCH: Final = frozenset({"after_shard", "before_manifest", "after_manifest"})

#: All of them.
ALL: Final = NAMES | OUTSIDE | BATCH

_lock = threading.Lock()
_passed = 0


def _parse(text: str | None) -> tuple[str, str | None, int, signal.Signals] | None:
    if not text:
        return None
    text, _, action = text.partition("=")
    site, _, count = text.partition(":")
    name, _, label = site.partition("@")
    if name not in ALL:
        raise ValueError(f"AIFLOW_FAILPOINT names {name!r}; known: {', '.join(sorted(ALL))}")
    if action not in ("", "stop"):
        raise ValueError(f"AIFLOW_FAILPOINT wants {action!r} at {name}; 'stop' is known, nothing: kill")
    return name, label or None, int(count or 1), signal.SIGSTOP if action else signal.SIGKILL


_armed = _parse(os.environ.get("AIFLOW_FAILPOINT"))


def arm(text: str | None) -> None:
    """
    Choose the crash site of this process: for the child of a process that has everything imported.

    :param text: as in the variable; ``None``: none.
    """
    global _armed, _passed
    _armed, _passed = _parse(text), 0


def failpoint(name: str, label: str = "") -> None:
    """
    Pass a crash site.

    :param name: one of ``ALL``.
    :param label: the step's or effect's name.
    """
    if _armed is None or name != _armed[0] or (_armed[1] is not None and _armed[1] != label):
        return
    global _passed
    with _lock:
        _passed += 1
        due = _passed == _armed[2]
    if due:
        os.kill(os.getpid(), _armed[3])
