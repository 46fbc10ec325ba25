-- A deferral and a reschedule leave a call open on purpose: until then nobody takes its process for one that was lost.

alter table aiflow.intent add column left_until timestamptz;    -- null: its process is at work, or was lost

-- As in 0002. Who left is away until then, or until the next attempt of that execution, which goes on or takes over.
create or replace view aiflow.effect_now as
select
    e.effect_id, e.namespace, e.name, e.key, e.state, e.repeat, e.intent_no,
    i.intent_id, i.request, i.request_sha256, i.request_fp,
    case when num_nonnulls(i.given, i.given_sha256) = 0 then i.result else i.given end as result,
    (case when num_nonnulls(i.given, i.given_sha256) = 0 then i.result_sha256 else i.given_sha256 end)::aiflow.sha256
        as result_sha256,
    case when num_nonnulls(i.given, i.given_sha256) = 0 then i.seal else i.given_seal end as seal,
    x.dag_id, x.run_id, x.task_id, x.map_index,
    i.execution_id, i.fence, i.generation, a.number, a.owner, i.intended_at, i.settled_at,
    coalesce(l.expires_at > clock_timestamp(), false) as live,
    extract(epoch from
        greatest(
            coalesce(l.expires_at, following.prior_lease_until, a.ended_at), i.intended_at,
            case when i.left_until is null then null else coalesce(following.started_at, i.left_until) end
        )
        + make_interval(secs => i.timeout_s) - clock_timestamp()
    )::double precision as gone_in,
    e.duplicate_suspected_at is not null as duplicate_suspected,
    e.identity, e.execution_id as current_execution_id,
    i.number as intent_number, i.decision, i.decided_by, i.decided_at, i.no,
    extract(epoch from clock_timestamp() - case
        when i.no = 1 then i.intended_at
        else (
            select first.intended_at from aiflow.intent first
            where first.effect_id = e.effect_id and first.repeat = e.repeat
            order by first.no
            limit 1
        )
    end)::double precision as age,
    case when e.succeeded_no is not null then
        extract(epoch from clock_timestamp()
            - least(i.settled_at, case when i.decision = 'happened' then i.decided_at end))::double precision
    end as done_for,
    i.left_until is not null as absent
from aiflow.effect e
join aiflow.intent i on i.effect_id = e.effect_id and i.no = coalesce(e.succeeded_no, e.intent_no)
join aiflow.execution x on x.execution_id = i.execution_id
join aiflow.attempt a on a.execution_id = i.execution_id and a.fence = i.fence
left join aiflow.lease l on l.execution_id = i.execution_id and l.fence = i.fence
left join aiflow.attempt following on following.execution_id = i.execution_id and following.fence = i.fence + 1;
