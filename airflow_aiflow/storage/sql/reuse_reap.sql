-- Forget where results lie that are older than any run may ask for. One slice of the index a time, from a place drawn by
-- lot: keys are hashes, so all of them have their turn, and no index over times is written for it. Whoever is reaping
-- the same rows is not waited for.
with slice as (
    select r.ctid, r.recorded_at
    from aiflow.reuse r
    where r.reuse_key >= %(from_key)s
    order by r.reuse_key
    limit %(most)s
),
old as (
    select r.ctid
    from aiflow.reuse r
    where r.ctid = any (array(
        select slice.ctid from slice where slice.recorded_at < statement_timestamp() - make_interval(secs => %(age)s)
    ))
    for update of r skip locked
)
delete from aiflow.reuse r using old where r.ctid = old.ctid
returning 1
