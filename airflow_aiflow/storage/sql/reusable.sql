-- The same steps in other runs of the task: by the key to a few candidates each, then compared in full.
select
    s.step_key, s.kind, s.name, s.unit, s.fingerprint, s.occurrence, s.fence, s.result, s.result_sha256, s.seal,
    s.ended_at, s.duration_ms, s.model, s.response_id, s.tokens_in, s.tokens_out, s.cost, s.prints,
    s.execution_id, s.generation, s.run_id, w.place - 1
from unnest(%(reuse_keys)b::bigint[], %(fingerprints)b::bytea[], %(occurrences)b::integer[])
    with ordinality w (reuse_key, fingerprint, occurrence, place)
cross join lateral (                           -- the newest first, and no further than the first that may be taken
    select t.*, x.run_id
    from aiflow.reuse r
    join aiflow.execution me on me.execution_id = %(execution_id)s
    join aiflow.execution x on x.execution_id = r.execution_id
    join aiflow.step t
        on t.execution_id = r.execution_id and t.generation = r.generation and t.step_key = r.step_key
    join aiflow.attempt a on a.execution_id = t.execution_id and a.fence = t.fence
    cross join lateral (select * from aiflow.server_identity()) server
    where
        r.reuse_key = w.reuse_key
        and r.recorded_at > statement_timestamp() - make_interval(secs => %(age)s)
        and t.fingerprint = w.fingerprint and t.name = %(name)s and t.occurrence = w.occurrence
        and x.dag_id = me.dag_id and x.task_id = me.task_id and x.run_id <> me.run_id
        and not exists (
            select from aiflow.lease l
            where l.execution_id = t.execution_id and l.expires_at > clock_timestamp()
        )
        and not (
            (a.system_identifier <> server.system_identifier or a.timeline <> server.timeline)
            and (a.ended_at is null or a.ending in ('lapsed', 'superseded'))
        )
    order by r.recorded_at desc
    limit 1
) s
