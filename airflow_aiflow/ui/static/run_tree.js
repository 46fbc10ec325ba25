/** The tree of a run: tasks in the DAG's order, each under the task that it waits for longest; pure. */

/**
 * @typedef {{task_id: string, map_index: number, state: string, attempts: number, started_at: string | null,
 *   finished_at: string | null, pause_reason?: string | null, live?: boolean, steps: number, calls: number,
 *   cost: string | null, unpriced: number, saved: {replay: {calls: number, cost: string | null},
 *   reuse: {calls: number, cost: string | null}}, effects: {done: number, in_doubt: number, other: number},
 *   recoveries: number}} Execution
 */
/** @typedef {{task_id: string, downstream_task_ids?: string[], operator_name?: string}} Task as Airflow's API gives it */
/** @typedef {{taskId: string, depth: number, ours: boolean, executions: Execution[]}} Line */
/** @typedef {(one: Execution) => {from: number, to: number, left: number, width: number} | null} Place */
/** @typedef {{calls: number, cost: number, unpriced: number, replay: {calls: number, cost: number}, reuse: {calls: number, cost: number}, done: number, inDoubt: number, recoveries: number}} Totals */

/** Tasks that are not ours are shown only while the whole fits on a page. */
const WHOLE = 60;

/**
 * @param {Task[]} tasks
 * @param {Execution[]} executions
 * @returns {Line[]}
 */
export function treeOf(tasks, executions) {
  /** @type {Map<string, Execution[]>} */
  const byTask = new Map();
  for (const one of executions) {
    const found = byTask.get(one.task_id);
    if (found) found.push(one);
    else byTask.set(one.task_id, [one]);
  }
  for (const each of byTask.values()) each.sort((a, b) => a.map_index - b.map_index);
  const order = ordered(tasks);
  const known = new Set(order.map((one) => one.taskId));
  const gone = [...byTask.keys()].filter((taskId) => !known.has(taskId)).sort();
  const lines = [...order, ...gone.map((taskId) => ({ taskId, depth: 0, ours: true }))].map((one) => ({
    ...one,
    executions: byTask.get(one.taskId) ?? [],
  }));
  return lines.length <= WHOLE ? lines : lines.filter((one) => one.executions.length > 0);
}

/** Operators of this package by their class's name; what a decorator makes begins with @task. */
const OURS = /^(@task\.(durable|effect)|Durable|Effect|Once|BatchInference)/;

/**
 * Walk the DAG depth first; a task with several upstreams stands under the deepest of them.
 *
 * @param {Task[]} tasks
 */
function ordered(tasks) {
  const byId = new Map(tasks.map((task) => [task.task_id, task]));
  const down = (/** @type {string} */ id) => (byId.get(id)?.downstream_task_ids ?? []).filter((one) => byId.has(one)).sort();
  /** @type {Map<string, number>} */
  const waits = new Map(tasks.map((task) => [task.task_id, 0]));
  for (const id of byId.keys()) for (const next of down(id)) waits.set(next, (waits.get(next) ?? 0) + 1);
  /** @type {Map<string, {depth: number, parent: string | null}>} */
  const found = new Map();
  const ready = [...byId.keys()].filter((id) => waits.get(id) === 0).sort();
  for (const id of ready) found.set(id, { depth: 0, parent: null });
  for (let at = 0; at < ready.length; at += 1) {
    const id = ready[at];
    const depth = (found.get(id)?.depth ?? 0) + 1;
    for (const next of down(id)) {
      if ((found.get(next)?.depth ?? -1) < depth) found.set(next, { depth, parent: id });
      waits.set(next, (waits.get(next) ?? 1) - 1);
      if (waits.get(next) === 0) ready.push(next);
    }
  }
  /** @type {Map<string | null, string[]>} */
  const children = new Map();
  for (const id of ready) {
    const parent = found.get(id)?.parent ?? null;
    children.set(parent, [...(children.get(parent) ?? []), id]);
  }
  /** @type {{taskId: string, depth: number, ours: boolean}[]} */
  const lines = [];
  const stack = [...(children.get(null) ?? [])].reverse();
  while (stack.length > 0) {
    const id = /** @type {string} */ (stack.pop());
    lines.push({ taskId: id, depth: found.get(id)?.depth ?? 0, ours: OURS.test(byId.get(id)?.operator_name ?? "") });
    stack.push(...[...(children.get(id) ?? [])].reverse());
  }
  return lines;
}

/**
 * Place executions on one axis, from the first beginning to the last end.
 *
 * @param {Execution[]} executions
 * @param {number} now
 * @returns {Place}
 */
export function barsOf(executions, now) {
  const span = (/** @type {Execution} */ one) => {
    if (!one.started_at) return null;
    const from = new Date(one.started_at).getTime();
    return { from, to: Math.max(from, one.finished_at ? new Date(one.finished_at).getTime() : now) };
  };
  const spans = executions.map(span).filter((one) => one !== null);
  const first = Math.min(...spans.map((one) => one.from));
  const length = Math.max(1, Math.max(...spans.map((one) => one.to)) - first);
  return (one) => {
    const own = span(one);
    return own && { ...own, left: (own.from - first) / length, width: (own.to - own.from) / length };
  };
}

/**
 * @param {Execution[]} executions
 * @returns {Totals}
 */
export function totalsOf(executions) {
  /** @type {Totals} */
  const sum = { calls: 0, cost: 0, unpriced: 0, replay: { calls: 0, cost: 0 }, reuse: { calls: 0, cost: 0 }, done: 0, inDoubt: 0, recoveries: 0 };
  for (const one of executions) {
    sum.calls += one.calls;
    sum.cost += Number(one.cost ?? 0);
    sum.unpriced += one.unpriced ?? 0;
    for (const kind of /** @type {const} */ (["replay", "reuse"])) {
      sum[kind].calls += one.saved?.[kind]?.calls ?? 0;
      sum[kind].cost += Number(one.saved?.[kind]?.cost ?? 0);
    }
    sum.done += one.effects?.done ?? 0;
    sum.inDoubt += one.effects?.in_doubt ?? 0;
    sum.recoveries += one.recoveries ?? 0;
  }
  return sum;
}
