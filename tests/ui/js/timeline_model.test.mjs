import assert from "node:assert/strict";
import { test } from "node:test";

import { MANY, barByKey, modelOf, packed, stepsOf } from "../../../airflow_aiflow/ui/static/timeline_model.js";

const COLUMNS = ["key", "kind", "name", "map", "item", "attempt", "fence", "started_at_ms", "ended_at_ms", "state", "cost", "calls"];
const at = (seconds) => new Date(seconds * 1000).toISOString();
const row = (key, fence, from, to, state = "ran") => [key, "step", key, null, null, fence, fence, from * 1000, to * 1000, state, null, 0];
const attempt = (fence, from, to, outcome) => ({ fence, attempt: fence, started_at: at(from), ended_at: to === null ? null : at(to), outcome });
const answer = (rows, attempts, more = {}) => ({ steps: { columns: COLUMNS, rows }, attempts, maps: [], effects: [], ...more });

test("rows become steps by their columns, whatever the order", () => {
  const [step] = stepsOf({ columns: ["state", "key", "started_at_ms", "ended_at_ms", "attempt"], rows: [["ran", "k", 5, 4, 2]] });
  assert.deepEqual([step.key, step.state, step.from, step.to, step.lane, step.calls, step.cost], ["k", "ran", 5, 5, 2, 0, null]);
});

test("a step stands in the lane of the attempt that recorded it", () => {
  const model = modelOf(
    answer([row("a", 1, 0, 2, "replayed"), row("b", 2, 5, 6)], [attempt(1, 0, 3, "killed"), attempt(2, 4, 8, "succeeded")]),
    9000,
  );
  assert.deepEqual(model.lanes.map((lane) => lane.bars.map((bar) => bar.id)), [["step:a"], ["step:b"]]);
  assert.deepEqual(model.lanes.map((lane) => [lane.found, lane.recorded]), [[0, 1], [1, 1]]);
  assert.equal(model.aggregated, false);
});

test("attempts of one number are lanes of their own", () => {
  const model = modelOf(answer([row("a", 1, 0, 1), row("b", 2, 2, 3)], [attempt(1, 0, 1, "killed"), { ...attempt(2, 2, 3, "succeeded"), attempt: 1 }]), 9000);
  assert.deepEqual(model.lanes.map((lane) => lane.bars.length), [1, 1]);
});

test("a running attempt reaches until now, a killed one until its last step", () => {
  const model = modelOf(answer([row("a", 1, 0, 2), row("b", 2, 5, 6)], [attempt(1, 0, null, "killed"), attempt(2, 4, null, "running")]), 9000);
  assert.deepEqual(model.lanes.map((lane) => lane.to), [2000, 9000]);
});

test("an effect has a bar in the lane that began it; one that an earlier attempt did was not done again", () => {
  const effects = [
    { number: 7, name: "pay", state: "in_doubt", begun_at: at(1), settled_at: null, attempt: 1, fence: 1 },
    { number: 9, name: "file", state: "succeeded", begun_at: at(5), settled_at: at(6), attempt: 2, fence: 2 },
    { number: 8, name: "mail", state: "succeeded", begun_at: at(1), settled_at: at(2), attempt: 1, fence: 1 },
  ];
  const model = modelOf(answer([], [attempt(1, 0, 3, "killed"), attempt(2, 4, 8, "paused")], { effects }), 9000);
  assert.deepEqual(model.lanes.map((lane) => lane.bars.map((bar) => [bar.id, bar.state])), [[["effect:8", "replayed"], ["effect:7", "in_doubt"]], [["effect:9", "ran"]]]);
});

test("a map is one bar; one that ended before the last attempt was replayed", () => {
  const map = { name: "rows", units: 9, steps: 9, done: 8, failed: 1, first_at: at(1), last_at: at(2), calls: 0, cost: null };
  const bars = (maps, attempts) => modelOf(answer([], attempts, { maps }), 9000).maps.map((bar) => [bar.id, bar.state, bar.from, bar.to]);
  const once = [attempt(1, 0, 3, "succeeded")];
  assert.deepEqual(bars([map], once), [["map:rows", "ran", 1000, 2000]]);
  assert.deepEqual(bars([map], [attempt(1, 0, 3, "killed"), attempt(2, 4, 5, "succeeded")])[0][1], "replayed");
  assert.deepEqual(bars([{ ...map, failed: 9 }], once)[0][1], "failed");
  const { lanes } = modelOf(answer([], [attempt(1, 0, 3, "killed"), attempt(2, 4, 5, "succeeded")], { maps: [map] }), 9000);
  assert.deepEqual(lanes.map((lane) => lane.found), [0, 9]);
});

test("above the limit steps close together are one bar, and none is lost", () => {
  const rows = Array.from({ length: 10_000 }, (_, n) => row(`s${n}`, n < 6000 ? 1 : 2, n, n + 1, n < 6000 ? "replayed" : "ran"));
  const began = performance.now();
  const model = modelOf(answer(rows, [attempt(1, 0, 6000, "killed"), attempt(2, 6000, 10_000, "succeeded")]), 1e9);
  const bars = model.lanes.flatMap((lane) => lane.bars);
  assert.ok(performance.now() - began < 300);
  assert.ok(model.aggregated && bars.length <= MANY);
  const counted = bars.reduce((sum, bar) => sum + (bar.what.kind === "many" ? bar.what.count : 1), 0);
  assert.equal(counted, 10_000);
});

test("bars that overlap get rows of their own, up to a limit", () => {
  const bars = [[0, 10], [1, 4], [2, 3], [4, 9]].map(([from, to], n) => ({ id: String(n), from, to, row: 0 }));
  assert.equal(packed(bars), 3);
  assert.deepEqual(bars.map((bar) => bar.row), [0, 1, 2, 1]);
  assert.equal(packed(Array.from({ length: 50 }, () => ({ from: 0, to: 1 }))), 6);
  assert.equal(packed([]), 1);
});

test("arrows walk along the bars and stop at the ends", () => {
  const bars = ["a", "b", "c"].map((id) => ({ id }));
  const to = (current, key) => barByKey(bars, current, key);
  assert.deepEqual([to("a", "ArrowRight"), to("c", "ArrowRight"), to("a", "ArrowLeft"), to("a", "End"), to("c", "Home")], ["b", "c", "a", "c", "a"]);
  assert.equal(to("a", "Tab"), null);
  assert.equal(barByKey([], null, "End"), null);
});
