-- Compare and set; whether the move is legal, the caller has checked against the one table of moves.
update aiflow.submission set
    state = %(new)s::text::aiflow.submission_state,
    finished_at = case when %(new)s::text in ('succeeded', 'failed', 'cancelled') then clock_timestamp() end,
    cancel_asked_at = case when %(retry)s then null else cancel_asked_at end,
    hold_asked_at = case when %(retry)s then null else hold_asked_at end,
    refused = case when %(retry)s then null else refused end
where submission_id = %(submission_id)s and state = %(old)s::text::aiflow.submission_state
returning submission_id
