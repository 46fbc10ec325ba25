-- How recovery went of late: what it started within the window, and what of that died again.
with late as materialized (
    select r.execution_id, r.fence, r.state, r.at from aiflow.requeue r
    where r.at > statement_timestamp() - make_interval(secs => %(window)s) and r.state <> 'void'
),
started as (
    select
        coalesce(a.ending in ('lapsed', 'superseded'), l.expires_at <= statement_timestamp()) as died,
        a.ending is not null or l.expires_at <= statement_timestamp()
            or a.started_at <= statement_timestamp() - make_interval(secs => %(known_after)s) as known
    from late
    cross join lateral (                       -- `offset 0`: from the mark to its attempt, whatever the statistics say
        select o.execution_id, o.fence, o.ending, o.started_at from aiflow.attempt o
        where o.execution_id = late.execution_id and o.fence = late.fence + 1
        offset 0
    ) a
    left join aiflow.lease l on l.execution_id = a.execution_id and l.fence = a.fence
    where late.state = 'consumed'
)
select
    (select count(*) from started where known)::integer,
    (select count(*) from started where known and died)::integer,
    (select count(*) from late where at > statement_timestamp() - interval '1 minute')::integer,
    (select extract(epoch from statement_timestamp() - max(at)) from late)::double precision
