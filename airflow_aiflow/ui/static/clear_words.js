// @ts-check
// What a clear would do, out of the ledger's preview: for a table of tasks, and for one sentence above it.

import { count, money, plural } from "./money.js";

/**
 * @typedef {{task_id: string, map_indexes: number[], durable: boolean, verdict: string, new_generation: boolean,
 *   steps_recorded: number, model_calls_recorded: number, model_calls_again: number, cost_again: string,
 *   effects_kept: Record<string, number>, below: boolean, unpriced: number}} ClearLine
 * @typedef {{tasks: ClearLine[], model_calls_again: number, cost_again: string,
 *   in_doubt: {number: number, effect: string}[], waiting: {number: number, subject: string}[],
 *   assets: {uri: string, triggers_dags: number}[]}} ClearPreview
 */

/**
 * Name the task instances of a line: `book[0..11]`, `book[0, 3..5]`.
 * @param {{task_id: string, map_indexes: number[]}} line
 * @returns {string}
 */
export function instances(line) {
  const indexes = [...line.map_indexes].filter((index) => index >= 0).sort((left, right) => left - right);
  if (indexes.length === 0) return line.task_id;
  /** @type {[number, number][]} */
  const runs = [];
  for (const index of indexes) {
    const last = runs[runs.length - 1];
    if (last && index === last[1] + 1) last[1] = index;
    else runs.push([index, index]);
  }
  const words = runs.map(([first, last]) => (first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}..${last}`));
  return `${line.task_id}[${words.join(", ")}]`;
}

/**
 * Say which model calls of a line run again, and for how much.
 * @param {ClearLine} line
 * @returns {string}
 */
export function callsOf(line) {
  if (!line.durable) return "";
  if (line.new_generation) return again(line.model_calls_again, line.cost_again, line.unpriced);
  if (line.below && line.model_calls_recorded) return `0 to ${count(line.model_calls_recorded)}: those whose input changed above`;
  return "none";
}

/**
 * @param {number} calls
 * @param {string} cost
 * @param {number} unpriced
 */
function again(calls, cost, unpriced) {
  return calls ? `${count(calls)} (${about(calls, cost, unpriced)})` : "none";
}

/**
 * @param {number} calls
 * @param {string} cost
 * @param {number} unpriced
 */
function about(calls, cost, unpriced) {
  if (unpriced >= calls) return "price unknown";
  return `about ${money(cost)}${unpriced ? ", some prices unknown" : ""}`;
}

/**
 * List the effects that a line keeps.
 * @param {ClearLine} line
 * @returns {string}
 */
export function keptOf(line) {
  return Object.entries(line.effects_kept)
    .sort(([left], [right]) => left.localeCompare(right))
    .map(([name, number]) => `${count(number)} ${name}`)
    .join(", ");
}

/**
 * Sum a clear up in one sentence.
 * @param {ClearPreview} preview
 * @returns {string}
 */
export function summary(preview) {
  const number = preview.tasks.reduce((sum, line) => sum + Math.max(1, line.map_indexes.length), 0);
  if (number === 0) return "There is nothing to clear.";
  const unpriced = preview.tasks.reduce((sum, line) => sum + (line.new_generation ? line.unpriced : 0), 0);
  const calls = preview.model_calls_again
    ? `${plural(preview.model_calls_again, "model call")} ${preview.model_calls_again === 1 ? "is" : "are"} paid again (${about(preview.model_calls_again, preview.cost_again, unpriced)})`
    : "no model call is paid again for sure";
  const kept = preview.tasks.reduce((sum, line) => sum + Object.values(line.effects_kept).reduce((all, one) => all + one, 0), 0);
  const effects = kept ? `${plural(kept, "effect")} ${kept === 1 ? "is" : "are"} kept and not repeated` : "no effect was done yet";
  return `${plural(number, "task instance")} ${number === 1 ? "runs" : "run"} again: ${calls}; ${effects}.`;
}

/**
 * Name what the page's own task ids mean to Airflow's API.
 * @param {string} taskId
 * @param {number | null | undefined} mapIndex
 * @returns {string | [string, number]}
 */
export function marker(taskId, mapIndex) {
  return mapIndex === null || mapIndex === undefined || mapIndex < 0 ? taskId : [taskId, mapIndex];
}
