// @ts-check
// What recovery found, in the words of its own table: short for a list, whole on hover.

/** @type {Record<string, {label: string, sign: string}>} */
const KINDS = {
  dead_worker: { label: "Worker died", sign: "The lease lapsed or the process is gone; Airflow says running." },
  dead_process: { label: "Process died", sign: "The lease lapsed without an outcome; Airflow waits to retry." },
  split_brain: { label: "Two at work", sign: "The lease was superseded or lapsed, and its process lives on." },
  hung: { label: "Hung", sign: "The lease is renewed, and no step was recorded for far longer than usual." },
  exhausted: { label: "Retries spent", sign: "The last attempts left no outcome; Airflow says failed." },
  unheard: { label: "Success not heard", sign: "The ledger says succeeded; Airflow does not." },
  restarting: { label: "Stuck restarting", sign: "The lease lapsed; Airflow waits for its worker to end it." },
  lost_return: { label: "Return lost", sign: "The ledger says paused; Airflow says failed, or waits to retry." },
  not_started: { label: "Never started", sign: "A task is queued for too long." },
  idle_run: { label: "Run stands still", sign: "A run with unfinished tasks has none that moves." },
};

/** @type {Record<string, {label: string, tone: "success" | "failed" | "neutral" | "info", hint: string}>} */
const DEEDS = {
  requeue: { label: "recovered", tone: "success", hint: "The task was cleared and goes on where it stopped." },
  settle: { label: "settled", tone: "info", hint: "What was left open was put in order." },
  quarantine: { label: "given up", tone: "failed", hint: "It died too often: a person has to mend the cause." },
  leave: { label: "left alone", tone: "neutral", hint: "Reported, not touched." },
};

/** @param {string} kind */
export const kindWords = (kind) => KINDS[kind] ?? { label: kind.replaceAll("_", " "), sign: "" };

/** @param {string} deed */
export const deedWords = (deed) =>
  DEEDS[deed] ?? { label: deed.replaceAll("_", " "), tone: /** @type {const} */ ("neutral"), hint: "" };

/**
 * Say how long the run stood still, beside what it would have without recovery.
 *
 * @param {{found_at: string, gone_on_at: string | null, detect_seconds: number | null,
 *   airflow_alone_seconds: number | null}} item
 * @returns {{still: number | null, alone: number | null, never: boolean}} milliseconds
 */
export function standstill(item) {
  const detect = item.detect_seconds === null ? null : item.detect_seconds * 1000;
  const gone = item.gone_on_at ? Date.parse(item.gone_on_at) - Date.parse(item.found_at) : null;
  return {
    still: gone === null || detect === null ? null : Math.max(0, detect + gone),
    alone: item.airflow_alone_seconds === null ? null : item.airflow_alone_seconds * 1000,
    never: item.airflow_alone_seconds === null,
  };
}
