-- Compare and set; whether the moves are legal, the caller has checked against the one table of moves. Whom to tell of an
-- end is written with it. Who looked may not have known of a cancel: a run that failed with one was cancelled. Who looks
-- while a retry clears the run sees it as it had ended: that is told some seconds later, and not at all once the retry
-- has moved it again. A person's retry after the deadline takes the deadline off: else it would be cancelled at once.
with wanted as materialized (
    select w.submission_id, w.old, w.new, s.retried_at
    from unnest(%(submission_ids)s::uuid[], %(olds)s::text[], %(news)s::text[]) w (submission_id, old, new)
    join aiflow.submission s on s.submission_id = w.submission_id
),
up as (
    update aiflow.submission s set
        state = case
            when w.new = 'failed' and s.cancel_asked_at is not null then 'cancelled' else w.new
        end::aiflow.submission_state,
        finished_at = case when w.new in ('succeeded', 'failed', 'cancelled') then clock_timestamp() end,
        cancel_asked_at = case when %(retry)s then null else s.cancel_asked_at end,
        hold_asked_at = case when %(retry)s then null else s.hold_asked_at end,
        refused = case when %(retry)s then null else s.refused end,
        retried_at = case when %(retry)s then clock_timestamp() else s.retried_at end,
        deadline = case when %(retry)s and s.deadline <= clock_timestamp() then null else s.deadline end,
        make_tries = case when %(retry)s then 0 else s.make_tries end,
        make_after = case when %(retry)s then null else s.make_after end
    from wanted w
    where s.submission_id = w.submission_id and s.state = w.old::aiflow.submission_state
    returning s.submission_id, s.state, s.finished_at, s.callback_url, w.retried_at
),
told as (
    insert into aiflow.callback (submission_id, state, url, next_at)
    select
        submission_id, state, callback_url,
        case
            when retried_at > clock_timestamp() - interval '10 seconds' then clock_timestamp() + interval '10 seconds'
            else clock_timestamp()
        end
    from up where finished_at is not null and callback_url is not null
),
untold as (
    delete from aiflow.callback c using up
    where %(retry)s and c.submission_id = up.submission_id and c.tries = 0 and c.created_at >= up.retried_at
        and up.retried_at > clock_timestamp() - interval '10 seconds'
)
select submission_id, finished_at from up
