import assert from "node:assert/strict";
import { test } from "node:test";

import { checkResult } from "../../../airflow_aiflow/ui/static/json_check.js";

test("nothing given is no result", () => {
  assert.deepEqual(checkResult(""), { state: "none" });
  assert.deepEqual(checkResult(" \n"), { state: "none" });
});

test("null is a result", () => {
  assert.deepEqual(checkResult("null"), { state: "good", value: null });
});

test("values arrive as they were written", () => {
  assert.deepEqual(checkResult('{"id": "ch_1", "cents": -11800, "rate": 0.25, "n": 9007199254740991}'), {
    state: "good",
    value: { id: "ch_1", cents: -11800, rate: 0.25, n: 9007199254740991 },
  });
  assert.equal(checkResult('"900719925474099299999 is a text"').state, "good");
});

test("a number that a browser would change is refused", () => {
  for (const text of ["12345678901234567890", '{"id": 9007199254740993}', "[1e999]", "0.12345678901234567890"]) {
    const found = checkResult(text);
    assert.equal(found.state, "bad", text);
    assert.match(found.why, /more digits than a browser keeps/);
  }
});

test("a bare text is told about quotes", () => {
  assert.equal(checkResult("sent").why, 'Not JSON. A text needs double quotes: "sent"');
});

test("the place of a mistake is named", () => {
  assert.match(checkResult('{"a": 1,\n "b": x}').why, /line 2, column 7/);
  assert.match(checkResult('{"a": ').why, /ends too early/);
  assert.equal(checkResult("NaN").state, "bad");
});

test("every broken text has a place, and every whole one none", () => {
  const broken = {
    "[1,]": /line 1, column 4/, '{"a" 1}': /column 6/, "[1 2]": /column 4/, '{a: 1}': /column 2/, "]": /column 1/,
    '"open': /ends too early/, "[1": /ends too early/, '{"a":1,': /ends too early/, "{": /ends too early/,
    '{"a": 01}': /column 8/, '"a"\n\n"b"': /line 3, column 1/, "[nul]": /column 2/, '"tab\there"': /column 1/,
    "1 ]": /column 3/, '{"a": 1]': /column 8/,
  };
  for (const [text, why] of Object.entries(broken)) assert.match(checkResult(text).why ?? "good", why, text);
  for (const text of ["[]", " {} ", '{"a": [{}, [], "x", -1.5e3, true]}', '"\\u00e9"']) {
    assert.equal(checkResult(text).state, "good", text);
  }
});
