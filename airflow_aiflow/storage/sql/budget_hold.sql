-- Set an estimate aside for one call where it fits into the budget.
select granted, cost, tokens, unknown_cost, unknown_tokens, open_cost, open_tokens
from aiflow.hold_budget(
    %(identity)s, %(dag_id)s, %(run_id)s, %(task_id)s, %(name)s, %(hold_id)s, %(execution_id)s, %(generation)s,
    %(fence)s, %(step_key)s, %(cost)s, %(tokens)s, %(seconds)s, %(most_cost)s, %(most_tokens)s
)
