"""
Situations around steps, payloads, effects and clears, and wrong input: which tests hold what must come of each.

Those of batches stand in ``tests/integration/test_field_batches.py``, of recovery in ``tests/recovery/handed.py``.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_CASES = "tests/integration/test_field_cases.py::"
_FIELD = "tests/integration/test_field_effects.py::"
_CLEAR = "tests/unit/runtime/test_clear.py::"
_IN_AIRFLOW = "tests/airflow/test_clear_situations.py::"
_DOUBTS = "tests/unit/runtime/test_doubts.py::"
_EFFECTS = "tests/unit/runtime/test_effects.py::"
_STEPS = "tests/unit/runtime/test_steps.py::"
_SUPERSEDE = "tests/crash/test_supersede.py::"
_POINTS = "tests/crash/test_failpoints.py::"
_WAITING = "tests/crash/test_waiting.py::"
_FAIL_OVER = "tests/integration/runtime/test_fail_over.py::"
_LEDGER = "tests/integration/storage/test_postgres_ledger.py::"
_S3 = "tests/integration/storage/test_s3_faults.py::"
_AGENTS = "tests/unit/runtime/test_agents.py::"
_INBOX = "tests/contract/test_inbox.py::"
_TARGET = "tests/integration/test_transactions.py::"
_COMMAND = "tests/integration/cli/test_effects_command.py::"
_KEYS = "tests/unit/decorators/test_effect_task.py::"
_MIGRATE = "tests/migration/test_migrate.py::"
_DOCUMENTS = "tests/integration/demo/test_documents.py::"

#: Number or name of the situation -> (what must come of it, the tests that hold it).
HELD: dict[str, tuple[str, tuple[str, ...]]] = {
    "C01": (
        "two tries at once: one effect, one charge, the earlier one ends by itself",
        (
            _SUPERSEDE + "test_the_newcomer_waits_for_the_unit_in_hand",
            "tests/unit/runtime/test_takeover.py::test_two_attempts_at_once_make_one_effect_and_one_charge",
        ),
    ),
    "C11": (
        "SIGTERM twice during a call, or just after an effect: what is in hand is recorded, paid work is not cancelled",
        (
            _WAITING + "test_a_model_call_in_flight_is_finished_and_paid_once",
            _WAITING + "test_an_effect_that_has_just_returned_is_recorded",
        ),
    ),
    "C13": (
        "no button repeats an effect, be it done, in flight or in doubt",
        (
            _CLEAR + "test_no_button_repeats_a_done_effect",
            _CLEAR + "test_no_button_sends_what_is_in_flight",
            _CLEAR + "test_no_button_sends_what_is_in_doubt",
            _IN_AIRFLOW + "test_marked_failed_and_then_cleared_resumes",
            "tests/crash/test_matrix.py::test_one_cell_of_each_row",
        ),
    ),
    "C14": (
        "a list that shifted above a mapped task gives no item another's result, and costs the new one alone",
        (
            "tests/integration/runtime/test_mapped_sharing.py::test_a_shifted_list_costs_one_call",
            _IN_AIRFLOW + "test_a_list_that_shifted_above_a_mapped_task_costs_one_step",
        ),
    ),
    "C16": (
        "nothing that a resume needs lives in XCom: after a reschedule, a deferral and a failed try",
        (
            "tests/unit/runtime/test_takeover.py::test_a_reschedule_goes_on_as_the_same_attempt",
            "tests/integration/airflow/test_once.py::test_a_sensor_comes_back_to_its_own_intent",
            _STEPS + "test_a_recorded_step_is_not_run_again",
        ),
    ),
    "C18": (
        "an unknown or empty selection is never sent to Airflow; what ran below replays",
        (
            "tests/unit/hooks/test_airflow_api.py::test_an_empty_selection_is_never_sent",
            "tests/integration/cli/test_runs_command.py::test_a_task_that_the_run_does_not_have_clears_nothing",
            _IN_AIRFLOW + "test_below_the_top_of_a_clear_steps_replay",
        ),
    ),
    "C20": (
        "a replay is by what was asked; what can't be compared is refused before it is sent",
        (
            _FIELD + "test_an_edited_prompt_gets_the_answer_of_the_old_one",
            _FIELD + "test_two_unreadable_requests_compare_equal",
            _FIELD + "test_a_prompt_with_the_time_in_it_is_replayed_all_the_same",
        ),
    ),
    "C21": (
        "two runs with the same arguments are two, a retry of one is none",
        (_EFFECTS + "test_without_a_key_the_scope_is_this_task_of_this_run",),
    ),
    "C23": (
        "tools side by side keep their own results in any order; two equal calls are two",
        (
            _FIELD + "test_two_tools_that_swap_their_order_swap_their_results",
            _FIELD + "test_two_equal_calls_of_one_turn_become_one",
            _AGENTS + "test_tools_side_by_side_keep_their_own_results_in_any_order",
        ),
    ),
    "C24": (
        "a run without a logical date resumes; a key that needs one says so",
        (
            "tests/airflow/test_durable_tasks.py::test_a_killed_task_goes_on_where_it_stopped",
            _KEYS + "test_a_key_whose_field_is_not_there_is_named",
        ),
    ),
    "C25": (
        "a call whose reply is lost is in doubt, and is not made again by a retry",
        (
            _FIELD + "test_a_tool_that_raises_after_its_commit_is_run_again",
            _FIELD + "test_a_closure_hides_the_request_from_who_must_answer",
            _AGENTS + "test_a_lost_reply_of_a_tool_is_in_doubt_and_never_sent_again",
        ),
    ),
    "C28": (
        "a call longer than its lease keeps it; the same try that is delivered again makes no second call",
        (_SUPERSEDE + "test_a_second_delivery_of_one_try_during_a_call_longer_than_its_lease",),
    ),
    "C29": (
        "who was superseded keeps the outcome of its call and nothing else",
        (
            _SUPERSEDE + "test_a_late_outcome_is_kept_and_its_attempt_ends",
            _SUPERSEDE + "test_a_stopped_attempt_whose_lease_lapsed_is_ended_and_its_effect_is_in_doubt",
        ),
    ),
    "C31": (
        "odd values come back as they were, or are refused with their path; what was paid for is kept as text",
        (
            _CASES + "test_values_change_between_the_first_run_and_the_replay",
            _CASES + "test_the_error_at_checkpoint_time_does_not_say_where_the_value_sits",
            _STEPS + "test_a_result_that_cannot_be_stored_is_named_by_its_path_and_kept",
        ),
    ),
    "C32": ("type and value of the first run are those of the replay", (_STEPS + "test_try_one_equals_try_two",)),
    "C35": (
        "where a part of a fingerprint can't be made, there is none",
        (_STEPS + "test_an_unreadable_argument_shares_no_row_with_another_prompt",),
    ),
    "C37": (
        "a claim whose owner is dead is taken over into doubt; a lease counts from the database's moment",
        (
            _POINTS + "test_effect_held",
            _FIELD + "test_a_lease_taken_late_in_a_transaction_is_lapsed_at_its_commit",
        ),
    ),
    "C42": (
        "what is sent again bears the same key and the same bytes",
        (
            _FIELD + "test_a_resent_request_has_another_key_or_body",
            _POINTS + "test_effect_retried_by_a_target_that_dedups",
        ),
    ),
    "C46": (
        "text is never rewritten, NaN and U+0000 included",
        (
            _CASES + "test_values_change_between_the_first_run_and_the_replay",
            "tests/integration/api/test_submissions_api.py::test_a_result_is_given_exactly",
        ),
    ),
    "C47": (
        "an answer with U+0000 is exact in the task, after a replay, and for who polls",
        (
            "tests/integration/llm/test_answers.py::test_text_comes_back_exactly",
            "tests/integration/api/test_submissions_api.py::test_a_result_is_given_exactly",
            "tests/integration/reading/test_executions.py::test_a_run_with_an_odd_id_is_read_as_itself",
        ),
    ),
    "C49": (
        "names that look alike after cleaning are different things",
        (
            _S3 + "test_names_never_reach_a_key",
            "tests/unit/durable/test_identity.py::test_no_two_executions_share_a_namespace",
        ),
    ),
    "C50": (
        "ids with slashes, dots and percent signs name what they name, and nothing leaves its place",
        (
            _CASES + "test_odd_ids_meet_each_other",
            "tests/integration/reading/test_executions.py::test_a_run_with_an_odd_id_is_read_as_itself",
            _S3 + "test_names_never_reach_a_key",
        ),
    ),
    "C51": (
        "nothing rests on conditional puts",
        (
            _S3 + "test_the_probe_of_a_server_that_ignores_conditions",
            "tests/contract/test_artifact_store.py::test_two_writers_of_one_artifact_make_one_object",
        ),
    ),
    "C52": (
        "an upload that fails or is killed leaves a whole object or none, and no parts",
        (
            _S3 + "test_a_large_file_is_stored_whole_after_a_fault",
            _S3 + "test_a_kill_in_an_upload_leaves_a_whole_object_or_none",
            "tests/contract/test_artifact_store.py::test_a_consumed_stream_is_stored_whole",
        ),
    ),
    "C56": (
        "megabytes of binary are kept and may be arguments; a size that no server takes is final",
        (
            _CASES + "test_large_binary_results_are_kept_and_may_be_arguments_of_the_next_call",
            _S3 + "test_an_object_too_large_for_the_server_is_final",
        ),
    ),
    "C60": ("a row can't run code, and an edited one is refused", (_CASES + "test_loading_a_row_runs_code",)),
    "C61": (
        "what the masker knows is in no table, event, artifact or log",
        (
            _CASES + "test_keys_are_persisted",
            _AGENTS + "test_a_secret_in_a_tools_result_reaches_neither_the_model_nor_the_ledger",
        ),
    ),
    "I01": (
        "a kill at each point of a step, a model call and an effect",
        (
            _POINTS + "test_step",
            _POINTS + "test_llm",
            _POINTS + "test_effect_held",
            _POINTS + "test_a_kill_between_the_request_and_its_reply",
            _POINTS + "test_a_finish_that_nobody_heard_of_replays_everything",
        ),
    ),
    "I02": (
        "no row names a result that is not there",
        (_CASES + "test_an_object_store_that_is_down_makes_a_done_row_without_its_result",),
    ),
    "I03": (
        "a fail-over that lost commits is seen: what may have been sent is asked about",
        (
            _FAIL_OVER + "test_an_effect_that_the_replica_knows_nothing_of_is_asked_about",
            _FAIL_OVER + "test_the_next_attempt_still_knows_of_it",
            _LEDGER + "test_commits_that_do_not_wait_are_refused_by_name",
        ),
    ),
    "I04": (
        "a full, read-only or lost server costs no paid answer",
        (
            _CASES + "test_a_full_or_read_only_server_drops_a_paid_answer",
            _SUPERSEDE + "test_an_outcome_that_cannot_reach_the_ledger_is_spooled_and_taken_in",
        ),
    ),
    "I10": (
        "an owner that was stopped for two leases goes on inside its call: once, whoever came meanwhile",
        (
            _SUPERSEDE + "test_an_owner_that_was_stopped_for_two_leases_goes_on_inside_its_call",
            _SUPERSEDE + "test_an_owner_that_goes_on_inside_its_call_after_another_machine_took_over",
        ),
    ),
    "I11": (
        "a run made again under the same id repeats no effect, and says so",
        (_FIELD + "test_a_run_made_again_answers_from_the_deleted_one_in_silence",),
    ),
    "I12": (
        "another run that asks for something else under the same key sends nothing",
        (_FIELD + "test_a_fixed_run_id_with_another_request_is_no_silent_answer",),
    ),
    "I13": (
        "rows gone on either side: effects that are known are kept, a task that is unknown begins anew",
        (
            _FIELD + "test_a_run_made_again_answers_from_the_deleted_one_in_silence",
            _FIELD + "test_a_task_whose_rows_are_gone_cannot_begin",
        ),
    ),
    "I14": (
        "mended code replays by default, and runs where its version says so",
        (_FIELD + "test_a_mended_step_is_never_run_again",),
    ),
    "I16": (
        "forms of a letter are different texts, in prompts, arguments and keys",
        (
            "tests/integration/llm/test_answers.py::test_a_prompt_goes_out_exactly",
            _EFFECTS + "test_a_release_name_with_odd_text_is_exact",
        ),
    ),
    "I17": ("rows of an older class load", (_CASES + "test_old_rows_do_not_load_after_an_upgrade",)),
    "I18": (
        "an exception as a result is refused with a way out; no result costs an effect's record",
        (
            _CASES + "test_an_exception_as_a_result_is_refused_with_a_way_out",
            "tests/unit/runtime/test_effect_faults.py::test_a_result_of_any_kind_never_costs_the_record",
        ),
    ),
    "I19": (
        "an object store that is away, without bucket, with new keys or another clock is waited for or named",
        (
            _S3 + "test_a_server_that_comes_back_is_waited_for",
            _S3 + "test_a_missing_bucket_is_named",
            _S3 + "test_rotated_credentials_are_taken_up",
            _S3 + "test_clocks_that_differ_are_told",
        ),
    ),
    "I27": ("a model's text never becomes an effect's name or key", (_FIELD + "test_a_model_chooses_the_key",)),
    "a wrong key": (
        "empty, too long, no text, None from a template: refused before anything is sent; a key is text as written",
        (
            _EFFECTS + "test_wrong_options_are_refused_before_the_intent",
            _KEYS + "test_a_key_after_rendering",
            _KEYS + "test_a_key_is_text_as_written_whatever_the_dag_makes_of_templates",
            "tests/unit/decorators/test_functions.py::test_the_text_of_a_none_makes_no_key_wherever_it_stands",
            "tests/unit/operators/test_once.py::test_a_key_is_text_and_never_a_file",
        ),
    ),
    "a key that differs between tries": (
        "held, both named, nothing sent",
        (
            _DOUBTS + "test_a_key_that_differs_between_two_tries_is_held_and_both_are_named",
            _DOUBTS + "test_a_key_that_is_given_or_left_out_or_scoped_otherwise_is_another_key_too",
        ),
    ),
    "a reconcile that raises or hangs": (
        "it can't tell, and never says no",
        (
            _DOUBTS + "test_what_is_no_clear_word_is_read_as_cannot_tell",
            _DOUBTS + "test_a_reconcile_that_hangs_is_cut_off_at_the_effects_timeout",
            _DOUBTS + "test_a_reconcile_that_ends_its_process_decides_nothing",
            "tests/unit/runtime/test_async_flow.py::test_a_probe_that_hangs_or_raises_cannot_tell",
        ),
    ),
    "a word on what is not in doubt, or twice": (
        "changes nothing, and says why and who was first",
        (
            _INBOX + "test_a_settled_call_is_not_decided",
            _INBOX + "test_who_comes_second_is_told_who_was_first",
            _COMMAND + "test_what_is_not_in_doubt_takes_no_word",
            "tests/integration/reading/test_words.py::test_the_second_person_is_told_who_was_first",
        ),
    ),
    "a result that is no JSON": (
        "refused, and the doubt stays",
        (
            _COMMAND + "test_a_result_that_is_not_json_changes_nothing",
            "tests/integration/reading/test_words.py::test_what_is_no_word_changes_nothing",
            _DOUBTS + "test_what_the_target_gave_and_cannot_be_stored_does_not_cost_its_word",
        ),
    ),
    "a clear while an answer is pending": (
        "asked anew; the old form's word counts for the call it was about, and for nothing else",
        (
            _DOUBTS + "test_a_word_in_a_form_from_before_a_clear_counts_for_its_call",
            _DOUBTS + "test_fail_the_task_in_a_form_from_before_a_clear_changes_nothing",
            "tests/unit/runtime/test_approvals.py::test_a_word_in_a_form_from_before_a_clear_agrees_to_nothing",
            "tests/unit/runtime/test_questions.py::test_a_clear_while_an_answer_is_pending_asks_anew_and_the_old_form_says_so",
            _INBOX + "test_what_was_asked_before_a_clear_takes_no_answer",
        ),
    ),
    "rights for the dedup table": (
        "the way out is told",
        (_TARGET + "test_a_role_without_rights_is_told_the_way_out",),
    ),
    "a connection that points elsewhere": (
        "refused, and nothing is changed there",
        (
            _TARGET + "test_a_connection_that_points_elsewhere_is_an_error",
            _TARGET + "test_a_fresh_generation_sees_that_the_connection_points_elsewhere",
            _TARGET + "test_a_connection_that_points_to_a_standby_is_told_the_way_out",
        ),
    ),
    "no connection, no ledger": (
        "nothing runs, and what to set is told",
        (
            "tests/integration/airflow/test_durable_runs.py::test_without_its_connection_nothing_runs",
            "tests/unit/runtime/test_takeover.py::test_a_ledger_that_cannot_be_asked_starts_nothing",
            _LEDGER + "test_an_unreachable_server_is_named_without_its_password",
        ),
    ),
    "another schema": (
        "an older one starts nothing, a newer one is named",
        (
            _MIGRATE + "test_an_attempt_under_the_schema_before_starts_nothing",
            _MIGRATE + "test_another_revision_is_told_as_older_or_newer",
        ),
    ),
    "an S3 server that truncates or answers 400 after storing": (
        "read again, stored once",
        (_S3 + "test_a_truncated_value_is_read_again", _S3 + "test_a_server_that_always_answers_400_after_storing"),
    ),
    "a document that can't be read": (
        "skipped and listed",
        (
            _DOCUMENTS + "test_unreadable_text_is_skipped_with_its_reason",
            _DOCUMENTS + "test_an_encrypted_pdf_is_skipped",
            "tests/integration/demo/test_document_review.py::test_the_report_and_the_mail_say_what_was_found",
        ),
    ),
}


@functools.cache
def functions_of(file: str) -> frozenset[str]:
    """Give the names of a file's functions."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef))


@pytest.mark.parametrize("name", HELD)
def test_a_situation_is_held_by_tests_that_exist(name: str) -> None:
    held = [where.partition("::") for where in HELD[name][1]]
    assert held
    assert [f"{file}::{test}" for file, _, test in held if test not in functions_of(file)] == []


def test_a_missing_test_is_seen() -> None:
    assert "test_nothing" not in functions_of("tests/unit/test_field_cases_held.py")
