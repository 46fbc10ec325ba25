select
    effect_id, namespace, name, key, state, repeat, intent_no, intent_id, request, request_sha256, request_fp, result,
    result_sha256, seal, dag_id, run_id, task_id, map_index, execution_id, fence, generation, number, owner,
    intended_at, settled_at, live, gone_in, duplicate_suspected
from aiflow.effect_now
where identity = %(identity)s
