// @ts-check
// How far a batch is, how fast it goes, and when it will be done.

/**
 * @typedef {{execution: import("./inbox_words.js").Execution, map: string, done: number, total: number | null, failed: number,
 *   rate: number | null, eta_seconds: number | null, started_at: string | null, ended_at: string | null}} Batch
 */

/**
 * Write a rate in the unit that gives a number people can picture.
 * @param {number | null | undefined} rate items a second
 * @returns {string}
 */
export function rateWords(rate) {
  if (!rate || !Number.isFinite(rate) || rate < 0) return "–";
  if (rate >= 1) return `${tidy(rate)} a second`;
  if (rate * 60 >= 1) return `${tidy(rate * 60)} a minute`;
  return `${tidy(rate * 3600)} an hour`;
}

/** @param {number} number */
function tidy(number) {
  return number.toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 1 : 0 });
}

/**
 * Give the share that is done, failed items included: they are not waited for.
 * @param {Batch} batch
 * @returns {number | null} between 0 and 1; null: nobody knows how many there are
 */
export function share(batch) {
  if (batch.total === null || batch.total === undefined) return batch.ended_at ? 1 : null;
  if (batch.total === 0) return 1;
  return Math.min(1, (batch.done + batch.failed) / batch.total);
}

/**
 * Part batches into those at work and those lately done.
 * @template {Batch} T
 * @param {T[]} batches
 * @returns {{running: T[], ended: T[]}}
 */
export function parted(batches) {
  const time = (/** @type {string | null} */ at) => at ?? "";
  return {
    running: batches.filter((each) => !each.ended_at).sort((left, right) => time(right.started_at).localeCompare(time(left.started_at))),
    ended: batches.filter((each) => each.ended_at).sort((left, right) => time(right.ended_at).localeCompare(time(left.ended_at))),
  };
}
