-- Note a call that was paid and gave nothing to record. The client-made id makes a repeat harmless.
insert into aiflow.wasted_call (call_id, execution_id, generation, fence, name, model, tokens_in, tokens_out, cost)
values (
    %(call_id)s, %(execution_id)s, %(generation)s, %(fence)s, %(name)s, %(model)s, %(tokens_in)s, %(tokens_out)s,
    %(cost)s
)
on conflict (call_id) do nothing
returning call_id
