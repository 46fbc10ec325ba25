import assert from "node:assert/strict";
import { test } from "node:test";

import { parted, rateWords, share } from "../../../airflow_aiflow/ui/static/batch_words.js";
import { callsOf, instances, keptOf, marker, summary } from "../../../airflow_aiflow/ui/static/clear_words.js";
import { deedWords, kindWords, standstill } from "../../../airflow_aiflow/ui/static/recovery_words.js";

const batch = (more = {}) => ({ done: 0, total: 10, failed: 0, rate: 1, eta_seconds: 1, started_at: null, ended_at: null, ...more });
const line = (more = {}) => ({
  task_id: "book", map_indexes: [-1], durable: true, verdict: "succeeded -> new generation", new_generation: true,
  steps_recorded: 3, model_calls_recorded: 12, model_calls_again: 12, cost_again: "0.05", effects_kept: {},
  below: false, unpriced: 0, ...more,
});

test("a rate is told in the unit that fits", () => {
  assert.equal(rateWords(81.2), "81 a second");
  assert.equal(rateWords(1.25), "1.3 a second");
  assert.equal(rateWords(0.5), "30 a minute");
  assert.equal(rateWords(0.001), "3.6 an hour");
  for (const none of [0, null, undefined, NaN, -1]) assert.equal(rateWords(none), "–");
});

test("how far a batch is", () => {
  assert.equal(share(batch({ done: 4, failed: 1 })), 0.5);
  assert.equal(share(batch({ total: null })), null);
  assert.equal(share(batch({ total: null, ended_at: "2026-11-29T00:00:00Z" })), 1);
  assert.equal(share(batch({ total: 0 })), 1);
  assert.equal(share(batch({ done: 12 })), 1);
});

test("batches at work come before those that ended, the latest first", () => {
  const found = parted([
    batch({ map: "old", started_at: "2026-11-29T01:00:00Z", ended_at: "2026-11-29T02:00:00Z" }),
    batch({ map: "new", started_at: "2026-11-29T03:00:00Z" }),
    batch({ map: "newer", started_at: "2026-11-29T04:00:00Z" }),
    batch({ map: "late", started_at: "2026-11-29T01:00:00Z", ended_at: "2026-11-29T05:00:00Z" }),
  ]);
  assert.deepEqual(found.running.map((each) => each.map), ["newer", "new"]);
  assert.deepEqual(found.ended.map((each) => each.map), ["late", "old"]);
});

test("task instances of a clear are named together", () => {
  assert.equal(instances(line()), "book");
  assert.equal(instances(line({ map_indexes: [2, 0, 1, 3] })), "book[0..3]");
  assert.equal(instances(line({ map_indexes: [0, 1, 4, 6, 7, 8] })), "book[0, 1, 4, 6..8]");
});

test("what a clear costs again", () => {
  assert.equal(callsOf(line()), "12 (about $0.05)");
  assert.equal(callsOf(line({ unpriced: 12 })), "12 (price unknown)");
  assert.equal(callsOf(line({ unpriced: 2 })), "12 (about $0.05, some prices unknown)");
  assert.equal(callsOf(line({ new_generation: false, model_calls_again: 0 })), "none");
  assert.equal(callsOf(line({ new_generation: false, below: true })), "0 to 12: those whose input changed above");
  assert.equal(callsOf(line({ durable: false })), "");
});

test("effects that stay", () => {
  assert.equal(keptOf(line({ effects_kept: { pay: 12, insert: 1200 } })), "1,200 insert, 12 pay");
  assert.equal(keptOf(line()), "");
});

test("a clear in one sentence", () => {
  const preview = { model_calls_again: 12, cost_again: "0.05", in_doubt: [], waiting: [], assets: [] };
  assert.equal(
    summary({ ...preview, tasks: [line({ map_indexes: [0, 1], effects_kept: { pay: 1 } }), line({ task_id: "mail" })] }),
    "3 task instances run again: 12 model calls are paid again (about $0.05); 1 effect is kept and not repeated.",
  );
  assert.match(summary({ ...preview, tasks: [line({ unpriced: 12 })] }), /12 model calls are paid again \(price unknown\)/);
  assert.equal(summary({ ...preview, tasks: [] }), "There is nothing to clear.");
});

test("a task is marked as Airflow's API takes it", () => {
  assert.equal(marker("book", -1), "book");
  assert.equal(marker("book", undefined), "book");
  assert.deepEqual(marker("book", 0), ["book", 0]);
});

test("what recovery found has words, whatever it is", () => {
  assert.equal(kindWords("dead_worker").label, "Worker died");
  assert.equal(kindWords("some_new_kind").label, "some new kind");
  assert.equal(deedWords("requeue").tone, "success");
  assert.equal(deedWords("new_deed").label, "new deed");
});

test("how long a run stood still", () => {
  const item = { found_at: "2026-11-29T18:00:00Z", gone_on_at: "2026-11-29T18:00:04Z", detect_seconds: 31 };
  assert.equal(standstill(item), 35000);
  assert.equal(standstill({ ...item, gone_on_at: null }), null);
  assert.equal(standstill({ ...item, gone_on_at: "2026-11-29T17:00:00Z" }), 0);
});
