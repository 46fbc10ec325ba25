-- Compare and set; whether the moves are legal, the caller has checked against the one table of moves. Whom to tell of an
-- end is written with it.
with wanted as (
    select * from unnest(%(submission_ids)s::uuid[], %(olds)s::text[], %(news)s::text[]) w (submission_id, old, new)
),
up as (
    update aiflow.submission s set
        state = w.new::aiflow.submission_state,
        finished_at = case when w.new in ('succeeded', 'failed', 'cancelled') then clock_timestamp() end,
        cancel_asked_at = case when %(retry)s then null else s.cancel_asked_at end,
        hold_asked_at = case when %(retry)s then null else s.hold_asked_at end,
        refused = case when %(retry)s then null else s.refused end,
        retried_at = case when %(retry)s then clock_timestamp() else s.retried_at end,
        make_tries = case when %(retry)s then 0 else s.make_tries end,
        make_after = case when %(retry)s then null else s.make_after end
    from wanted w
    where s.submission_id = w.submission_id and s.state = w.old::aiflow.submission_state
    returning s.submission_id, s.state, s.finished_at, s.callback_url
),
told as (
    insert into aiflow.callback (submission_id, state, url)
    select submission_id, state, callback_url from up where finished_at is not null and callback_url is not null
)
select submission_id, finished_at from up
