/** Addresses of Airflow's own pages, as its router takes them; pure. */

/** @typedef {{dag_id: string, run_id: string, task_id: string, map_index: number}} Address */

const part = encodeURIComponent;

/** @param {string} dagId */
export const dagAddress = (dagId) => `/dags/${part(dagId)}`;

/** @param {string} dagId @param {string} runId */
export const runAddress = (dagId, runId) => `${dagAddress(dagId)}/runs/${part(runId)}`;

/** @param {Address} address */
export function taskAddress({ dag_id: dagId, run_id: runId, task_id: taskId, map_index: mapIndex }) {
  const task = `${runAddress(dagId, runId)}/tasks/${part(taskId)}`;
  return mapIndex >= 0 ? `${task}/mapped/${mapIndex}` : task;
}

/** @param {Address} address The tab of a task instance. */
export const timelineAddress = (address) => `${taskAddress(address)}/plugin/aiflow-task`;

/** @param {string} dagId @param {string} runId The tab of a run. */
export const runPageAddress = (dagId, runId) => `${runAddress(dagId, runId)}/plugin/aiflow-run`;
