import assert from "node:assert/strict";
import { test } from "node:test";

import { folded, lineDiff } from "../../../airflow_aiflow/ui/static/text_diff.js";

/** Write a diff as `diff` does. */
const written = (diff) =>
  diff.map((line) => `${{ same: " ", gone: "-", new: "+", folded: "@" }[line.mark]}${line.text ?? line.count}`).join("\n");

test("equal texts have no change", () => {
  assert.equal(written(lineDiff("a\nb\n", "a\nb")), " a\n b");
  assert.deepEqual(lineDiff("", ""), []);
});

test("a change in the middle, with line numbers of both sides", () => {
  const diff = lineDiff("a\nb\nc\nd", "a\nx\nc\ny\nd");
  assert.equal(written(diff), " a\n-b\n+x\n c\n+y\n d");
  assert.deepEqual(diff.at(-1), { mark: "same", text: "d", before: 4, after: 5 });
  assert.deepEqual(diff[1], { mark: "gone", text: "b", before: 2, after: null });
});

test("all gone, all new", () => {
  assert.equal(written(lineDiff("a\nb", "")), "-a\n-b");
  assert.equal(written(lineDiff("", "a")), "+a");
});

test("either side can be rebuilt from any diff", () => {
  let seed = 42;
  const random = (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * below);
  };
  for (let round = 0; round < 200; round += 1) {
    const make = () => Array.from({ length: random(12) }, () => "abc"[random(3)]);
    const [before, after] = [make(), make()];
    const diff = lineDiff(before.join("\n"), after.join("\n"));
    assert.deepEqual(diff.filter((line) => line.mark !== "new").map((line) => line.text), before);
    assert.deepEqual(diff.filter((line) => line.mark !== "gone").map((line) => line.text), after);
  }
});

test("two huge texts are replaced as a whole instead of freezing the page", () => {
  const before = Array.from({ length: 3000 }, (_, place) => `a${place}`).join("\n");
  const after = Array.from({ length: 3000 }, (_, place) => `b${place}`).join("\n");
  assert.equal(lineDiff(before, after).length, 6000);
});

test("what stayed is folded away from changes", () => {
  const before = Array.from({ length: 20 }, (_, place) => `line ${place}`);
  const after = before.with(10, "other");
  const found = folded(lineDiff(before.join("\n"), after.join("\n")), 2);
  assert.equal(written(found), "@8\n line 8\n line 9\n-line 10\n+other\n line 11\n line 12\n@7");
});

test("carriage returns are no change", () => {
  assert.equal(written(lineDiff("a\r\nb", "a\nb")), " a\n b");
});
