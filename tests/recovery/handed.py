"""
Situations that people who run such pipelines have met, and which tests hold what must come of each.

``case:KEY`` is a case of the recovery report; everything else is a test of the suite. A test holds that all are there.
"""

from __future__ import annotations

_LEDGER = "tests/integration/storage/test_recovery_ledger.py::"
_PLANS = "tests/integration/storage/test_recovery_plans.py::"
_RESTART = "tests/integration/storage/test_recovery_restart.py::"
_GUARD = "tests/crash/test_guard.py::"
_DECIDE = "tests/unit/durable/test_recover.py::"

#: Number of the situation -> (what must come of it, where that is held).
HANDED: dict[str, tuple[str, tuple[str, ...]]] = {
    "C03": (
        "news of another owner or try changes nothing for one whose lease is alive",
        (_LEDGER + "test_news_of_a_duplicate_does_not_touch_its_owner", _DECIDE + "test_what_is_left_alone"),
    ),
    "C05": (
        "found twice at once, and once more afterwards: one requeue, one more try",
        (_LEDGER + "test_a_mark_is_one_s_alone", "case:two_recoveries"),
    ),
    "C06": (
        "a lease that one lost heartbeat would cost is refused; two sensors requeue once",
        ("tests/unit/runtime/test_takeover.py::test_a_heartbeat_must_fit_the_lease", "case:two_recoveries"),
    ),
    "C09": (
        "killed in mid call, or cleared while running and then without worker and scheduler: recovered, one effect",
        ("case:task_killed_retries", "case:restarting"),
    ),
    "C34": (
        "PostgreSQL restarts while 250 are requeued: each once, by the next passes",
        (_RESTART + "test_a_server_that_restarts_in_the_middle_of_requeuing_250_requeues_each_once", "case:crowd"),
    ),
    "C36": (
        "a blocked loop or interpreter is no death; what has ended is never requeued",
        (
            "case:gil_held",
            "case:loop_blocked",
            _GUARD + "test_a_call_that_holds_the_interpreter_keeps_its_lease_and_shows_no_progress",
            _GUARD + "test_an_async_task_that_computes_for_longer_than_its_lease_keeps_it",
            _LEDGER + "test_a_heartbeat_after_the_end_finds_nothing_to_renew",
        ),
    ),
    "C39": (
        "a worker's clock ten minutes off: no false find, and a real death found in time",
        ("case:clock_ahead", "case:clock_behind", _LEDGER + "test_a_worker_s_clock_that_is_off_changes_nothing"),
    ),
    "C40": (
        "a step that kills its process each time: few requeues, then parked with its name and an alert, no effect",
        ("case:deadly_step", _DECIDE + "test_deaths_in_the_same_step_end_in_quarantine_with_the_step_named"),
    ),
    "I07": (
        "the recovery DAG dies in its pass, or runs twice: nothing is requeued twice, nothing is left",
        (
            "case:recovery_killed",
            "case:two_recoveries",
            _LEDGER + "test_a_mark_that_a_dead_process_left_is_soon_nobody_s",
        ),
    ),
    "I22": (
        "a big ledger: each statement of a pass by an index, few statements, short locks",
        (
            _PLANS + "test_no_statement_reads_a_big_table",
            _PLANS + "test_a_pass_is_three_statements_and_one_more_before_a_requeue",
            _LEDGER + "test_many_marks_at_once_of_one_run_share_it_without_a_deadlock",
        ),
    ),
}
