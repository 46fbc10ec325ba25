import assert from "node:assert/strict";
import { test } from "node:test";

import { chartOf } from "../../../airflow_aiflow/ui/static/history_chart.js";
import { bytes, written } from "../../../airflow_aiflow/ui/static/values.js";

test("columns are stacked under one round top", () => {
  const runs = [{ run_id: "a", paid: 30, saved: 10 }, { run_id: "b", paid: 0, saved: null }];
  const parts = [{ name: "paid", tone: "paid", of: (run) => run.paid }, { name: "saved", tone: "saved", of: (run) => run.saved }];
  const { columns, top, total } = chartOf(runs, parts);
  assert.equal(top, 50);
  assert.deepEqual(columns.map((one) => one.shares), [[0.6, 0.2], [0, 0]]);
  assert.deepEqual(total, [30, 10]);
});

test("sizes and values are readable", () => {
  assert.deepEqual([0, 1023, 1536, 20_000_000, null].map(bytes), ["0 bytes", "1023 bytes", "1.5 kB", "19 MB", "–"]);
  assert.deepEqual([written("a\nb"), written({ a: 1 }), written(null)], ["a\nb", '{\n  "a": 1\n}', "null"]);
});
