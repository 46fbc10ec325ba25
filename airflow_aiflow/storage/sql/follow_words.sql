-- What makes a submission stand otherwise than it did, as far as the ledger knows: not how it stands.
select
    w.place,
    concat_ws(
        ' ', s.state, s.made_at is not null, s.cancel_asked_at is not null, s.hold_asked_at is not null,
        exists (
            select from aiflow.execution x
            where hashtextextended(x.dag_id, 0) = hashtextextended(w.dag_id, 0)
            and hashtextextended(x.run_id, 0) = hashtextextended(w.run_id, 0)
            and x.dag_id = w.dag_id and x.run_id = w.run_id and x.state = 'paused'
        )
    )
from unnest(%(dag_ids)s::text[], %(run_ids)s::text[]) with ordinality w (dag_id, run_id, place)
join aiflow.submission s
    on hashtextextended(s.dag_id, 0) = hashtextextended(w.dag_id, 0)
    and hashtextextended(s.run_id, 0) = hashtextextended(w.run_id, 0)
    and s.dag_id = w.dag_id and s.run_id = w.run_id
