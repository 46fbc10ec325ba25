/**
 * Clear task instances by Airflow's own API, with what the person wishes of it. The wish is written before Airflow is
 * asked, for the new attempt may start before the answer comes; where Airflow refuses, it is taken back.
 */

import { core, post } from "./api.js";

/**
 * @typedef {string | [string, number]} Marker
 * @typedef {{dagId: string, runId: string, taskIds?: Marker[] | null, downstream?: boolean}} Chosen
 * @typedef {"fresh" | "resume"} Wish
 */

/** @param {Chosen} chosen */
export const bodyOf = ({ dagId, runId, taskIds, downstream = true }) => ({
  dag_id: dagId,
  run_id: runId,
  ...(taskIds ? { task_ids: taskIds, downstream } : {}),
});

/**
 * @param {Chosen} chosen
 * @param {Wish | null} wish null: the task decides
 * @returns {Promise<number>} how many task instances Airflow cleared
 */
export async function clear(chosen, wish) {
  if (wish !== null) await post("/clear:wish", { ...bodyOf(chosen), on_clear: wish });
  let answer;
  try {
    answer = await core("POST", `api/v2/dags/${encodeURIComponent(chosen.dagId)}/clearTaskInstances`, {
      dry_run: false,
      dag_run_id: chosen.runId,
      only_failed: false,
      reset_dag_runs: true,
      ...(chosen.taskIds ? { task_ids: chosen.taskIds, include_downstream: chosen.downstream ?? true } : {}),
    });
  } catch (error) {
    // Without an answer Airflow may have cleared: the wish then stays, and lapses by itself.
    if (wish !== null && /** @type {{status?: number}} */ (error).status) await settle(chosen, false);
    throw error;
  }
  if (wish !== null) await settle(chosen, true);
  return answer.total_entries ?? answer.task_instances?.length ?? 0;
}

/**
 * @param {Chosen} chosen
 * @param {boolean} cleared
 */
async function settle(chosen, cleared) {
  try {
    await post("/clear:wish_settled", { ...bodyOf(chosen), cleared });
  } catch {
    // It lapses by itself; what counts has happened.
  }
}
