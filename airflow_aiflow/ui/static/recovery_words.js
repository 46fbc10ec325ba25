// @ts-check
// What recovery found, in the words of its own table: short for a list, whole on hover.

/** @type {Record<string, {label: string, sign: string, alone: string}>} */
const KINDS = {
  dead_worker: { label: "Worker died", sign: "The lease lapsed or the process is gone; Airflow says running.", alone: "finds it after 300 s and burns a retry" },
  dead_process: { label: "Process died", sign: "The lease lapsed without an outcome; Airflow waits to retry.", alone: "retries after retry_delay; with retries=0 it fails and no callback runs" },
  split_brain: { label: "Two at work", sign: "The lease was superseded or lapsed, and its process lives on.", alone: "never finds it: a second try runs beside it" },
  hung: { label: "Hung", sign: "The lease is renewed, and no step was recorded for far longer than usual.", alone: "never finds it, unless execution_timeout is set" },
  exhausted: { label: "Retries spent", sign: "The last attempts left no outcome; Airflow says failed.", alone: "the run has failed for good" },
  unheard: { label: "Success not heard", sign: "The ledger says succeeded; Airflow does not.", alone: "runs all of it again, or leaves it failed" },
  restarting: { label: "Stuck restarting", sign: "The lease lapsed; Airflow waits for its worker to end it.", alone: "300 s, or never where the scheduler died as well" },
  lost_return: { label: "Return lost", sign: "The ledger says paused; Airflow says failed, or waits to retry.", alone: "the run has failed for good" },
  not_started: { label: "Never started", sign: "A task is queued for too long.", alone: "600 s or more, never with LocalExecutor" },
  idle_run: { label: "Run stands still", sign: "A run with unfinished tasks has none that moves.", alone: "never finds it" },
  unmade_run: { label: "Run never made", sign: "A submission was written down and has no run.", alone: "knows nothing of it" },
};

/** @type {Record<string, {label: string, tone: "success" | "failed" | "neutral" | "info", hint: string}>} */
const DEEDS = {
  requeue: { label: "recovered", tone: "success", hint: "The task was cleared and goes on where it stopped." },
  settle: { label: "settled", tone: "info", hint: "What was left open was put in order." },
  quarantine: { label: "given up", tone: "failed", hint: "It died too often: a person has to mend the cause." },
  leave: { label: "left alone", tone: "neutral", hint: "Reported, not touched." },
};

/** @param {string} kind */
export const kindWords = (kind) => KINDS[kind] ?? { label: kind.replaceAll("_", " "), sign: "", alone: "" };

/** @param {string} deed */
export const deedWords = (deed) =>
  DEEDS[deed] ?? { label: deed.replaceAll("_", " "), tone: /** @type {const} */ ("neutral"), hint: "" };

/**
 * Say how long the run stood still.
 *
 * @param {{found_at: string, gone_on_at: string | null, detect_seconds: number | null}} item
 * @returns {number | null} milliseconds; null: it has not gone on, or nobody knows
 */
export function standstill({ found_at: found, gone_on_at: on, detect_seconds: detect }) {
  return on === null || detect === null ? null : Math.max(0, detect * 1000 + Date.parse(on) - Date.parse(found));
}
