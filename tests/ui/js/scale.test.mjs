import assert from "node:assert/strict";
import { test } from "node:test";

import { foldedScale, joined, niceTop, ticks } from "../../../airflow_aiflow/ui/static/scale.js";

const MIN = 60_000;

test("spans that touch are one", () => {
  assert.deepEqual(joined([{ from: 5, to: 9 }, { from: 0, to: 5 }, { from: 12, to: 13 }, { from: 6, to: 7 }]), [
    { from: 0, to: 9 },
    { from: 12, to: 13 },
  ]);
});

test("without a long pause the axis is even", () => {
  const scale = foldedScale([{ from: 1000, to: 2000 }, { from: 2050, to: 3000 }]);
  assert.deepEqual(scale.folds, []);
  assert.equal(scale.at(2000), 0.5);
  assert.equal(scale.at(0), 0);
  assert.equal(scale.at(9000), 1);
});

test("a day between two attempts takes little of the axis, and order is kept", () => {
  const day = 86_400_000;
  const scale = foldedScale([{ from: 0, to: MIN }, { from: day, to: day + MIN }]);
  assert.equal(scale.folds.length, 1);
  const [a, b, c, d] = [0, MIN, day, day + MIN].map(scale.at);
  assert.ok(a === 0 && a < b && b < c && c < d && d === 1);
  assert.ok(c - b < 0.05);
  assert.ok(Math.abs(b - a - (d - c)) < 1e-9);
  assert.ok(scale.at(day / 2) > b && scale.at(day / 2) < c);
});

test("many pauses never take most of the axis", () => {
  const spans = Array.from({ length: 40 }, (_, n) => ({ from: n * 100 * MIN, to: n * 100 * MIN + MIN }));
  const scale = foldedScale(spans);
  const folded = scale.pieces.filter((piece) => piece.folded).reduce((sum, piece) => sum + piece.right - piece.left, 0);
  assert.equal(scale.folds.length, 39);
  assert.ok(folded <= 0.3 + 1e-9, String(folded));
});

test("one moment is an axis too", () => {
  const scale = foldedScale([{ from: 7, to: 7 }]);
  assert.equal(scale.at(7), 0);
  assert.equal(scale.at(8), 1);
  assert.deepEqual(foldedScale([]).folds, []);
});

test("ticks are round, few and apart, and none lies in a fold", () => {
  const scale = foldedScale([{ from: 500, to: 61_000 }, { from: 3_600_000, to: 3_660_000 }]);
  const found = ticks(scale);
  assert.ok(found.length >= 3 && found.length <= 10);
  for (const { ms } of found) {
    assert.equal(ms % 1000, 0);
    assert.ok(ms <= 61_000 || ms >= 3_600_000);
  }
  found.slice(1).forEach((tick, at) => assert.ok(tick.at - found[at].at >= 0.09));
});

test("the top of an axis is round and not below the most", () => {
  assert.deepEqual([0, 1, 3, 23, 26, 0.00041, 999].map(niceTop), [1, 1, 5, 25, 50, 0.0005, 1000]);
});
