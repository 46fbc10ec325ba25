import assert from "node:assert/strict";
import { test } from "node:test";

import { barsOf, totalsOf, treeOf } from "../../../airflow_aiflow/ui/static/run_tree.js";

const task = (task_id, ...downstream_task_ids) => ({ task_id, downstream_task_ids, operator_name: "@task.durable" });
const one = (task_id, map_index = -1, more = {}) => ({
  task_id, map_index, state: "succeeded", attempts: 1, steps: 1, calls: 2, cost: "0.01", unpriced: 0, recoveries: 0,
  saved: { replay: { calls: 1, cost: "0.005" }, reuse: { calls: 0, cost: null } }, effects: { done: 1, in_doubt: 0, other: 0 },
  started_at: "2026-01-01T00:00:00Z", finished_at: "2026-01-01T00:00:10Z", ...more,
});
const shape = (lines) => lines.map((line) => `${"  ".repeat(line.depth)}${line.taskId}`);

test("a task stands once, under the one that it waits for longest", () => {
  const tasks = [task("d"), task("a", "b", "d"), task("b", "c"), task("c", "d"), task("x")];
  assert.deepEqual(shape(treeOf(tasks, [])), ["a", "  b", "    c", "      d", "x"]);
});

test("instances of a mapped task are together and in order; one that left the DAG is kept", () => {
  const lines = treeOf([task("m")], [one("m", 10), one("m", 2), one("old")]);
  assert.deepEqual(lines.map((line) => [line.taskId, line.executions.map((each) => each.map_index)]), [["m", [2, 10]], ["old", [-1]]]);
});

test("a large DAG shows only what has something to show", () => {
  const tasks = Array.from({ length: 100 }, (_, n) => task(`t${n}`));
  assert.deepEqual(treeOf(tasks, [one("t7")]).map((line) => line.taskId), ["t7"]);
});

test("other people's tasks are told apart", () => {
  const lines = treeOf([{ task_id: "plain", operator_name: "BashOperator" }, task("ours")], []);
  assert.deepEqual(lines.map((line) => [line.taskId, line.ours]), [["ours", true], ["plain", false]]);
});

test("bars share one axis; what has not begun has none", () => {
  const place = barsOf([one("a"), one("b", -1, { started_at: "2026-01-01T00:00:10Z", finished_at: "2026-01-01T00:00:40Z" })], 0);
  assert.deepEqual([place(one("a")).left, place(one("a")).width], [0, 0.25]);
  assert.equal(place(one("c", -1, { started_at: null })), null);
});

test("totals add up what is known", () => {
  const sum = totalsOf([one("a"), one("b", -1, { cost: null, unpriced: 2 })]);
  assert.deepEqual([sum.calls, sum.cost, sum.unpriced, sum.replay.calls, sum.done], [4, 0.01, 2, 2, 2]);
});
