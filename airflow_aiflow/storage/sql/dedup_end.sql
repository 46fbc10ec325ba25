-- The last statement before the commit, sent together with it: where the row is not our transaction's own any more, the
-- division fails, and with it the commit. A commit that may be lost by a crash of the server is made one that waits.
with done as (
    update aiflow_dedup.effect set open = null, result = $2::bytea, result_sha256 = $3::bytea, seal = $4::bytea
    where identity = $1::bytea and act = $5::uuid and xmin = pg_catalog.pg_current_xact_id()::xid
    returning case pg_catalog.current_setting('synchronous_commit')
        when 'off' then pg_catalog.set_config('synchronous_commit', 'local', true)
    end
)
select 1 / count(*) from done
