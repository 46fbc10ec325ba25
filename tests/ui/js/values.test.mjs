import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, emptyWord, written } from "../../../airflow_aiflow/ui/static/values.js";

test("what is empty has a word, and what is there has none", () => {
  assert.deepEqual([null, undefined, "", [], {}].map(emptyWord), ["none", "none", "an empty text", "an empty list", "empty"]);
  for (const value of [0, false, "0", [null], { a: null }]) assert.equal(emptyWord(value), null);
});

test("a text is written as it is, everything else as JSON", () => {
  assert.equal(written("a\nb"), "a\nb");
  assert.equal(written({ a: 1 }), '{\n  "a": 1\n}');
  assert.equal(written(null), "null");
});

test("a size is short", () => {
  assert.deepEqual([null, 0, 1023, 1536, 20 * 1024 * 1024].map(bytes), ["–", "0 bytes", "1023 bytes", "1.5 kB", "20 MB"]);
});
