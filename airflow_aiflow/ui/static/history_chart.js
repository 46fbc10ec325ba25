/** Columns of a small chart over runs; pure. */

import { niceTop } from "./scale.js";

/**
 * @typedef {{run_id: string, started_at: string | null, duration_ms: number | null, calls_paid: number,
 *   calls_saved: number, cost: string | null, saved_cost: string | null, recoveries: number, in_doubt: number,
 *   state: string, outlier: boolean}} Run
 */
/** @typedef {{name: string, tone: string, of: (run: Run) => number}} Part */
/** @typedef {{run: Run, shares: number[], sum: number}} Column */

/**
 * Stack parts in columns of one height.
 *
 * @param {Run[]} runs
 * @param {Part[]} parts
 * @returns {{columns: Column[], top: number, total: number[]}} `shares` of the chart's height
 */
export function chartOf(runs, parts) {
  const rows = runs.map((run) => {
    const values = parts.map((part) => Math.max(0, part.of(run) || 0));
    return { run, values, sum: values.reduce((sum, one) => sum + one, 0) };
  });
  const top = niceTop(Math.max(0, ...rows.map((row) => row.sum)));
  const columns = rows.map(({ run, values, sum }) => ({ run, sum, shares: values.map((one) => one / top) }));
  return { columns, top, total: parts.map((_, at) => rows.reduce((sum, row) => sum + row.values[at], 0)) };
}
