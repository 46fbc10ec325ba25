-- Whether an execution has recorded an artifact as a result, or an effect of it as request or result.
select exists (
    select from aiflow.step s where s.result_sha256 = %(sha256)s and s.execution_id = %(execution_id)s
) or exists (
    select from aiflow.execution x where x.execution_id = %(execution_id)s and x.result_sha256 = %(sha256)s
) or exists (
    select from aiflow.effect e
    join aiflow.intent i on i.effect_id = e.effect_id
    where e.execution_id = %(execution_id)s and %(sha256)s in (i.request_sha256, i.result_sha256, i.given_sha256)
)
