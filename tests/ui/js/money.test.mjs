import assert from "node:assert/strict";
import { test } from "node:test";

import { count, money, percent, plural, priced } from "../../../airflow_aiflow/ui/static/money.js";

test("amounts keep what matters of them", () => {
  const expected = {
    0: "$0", "0.00": "$0", 0.0000042: "$0.000004", 0.0042: "$0.0042", "0.004": "$0.004", 0.031: "$0.031",
    0.41: "$0.41", 0.1: "$0.10", 12.5: "$12.50", "1234567.891": "$1,234,567.89", "-0.5": "−$0.50",
  };
  for (const [amount, text] of Object.entries(expected)) assert.equal(money(amount), text, amount);
  assert.equal(money("0.0000000001"), "< $0.000001");
});

test("an unknown price is no price of nothing", () => {
  for (const unknown of [null, undefined, "", "NaN"]) assert.equal(money(unknown), "price unknown");
  assert.equal(priced("0", 3, 3), "price unknown");
  assert.equal(priced("0.41", 4, 1), "$0.41 and 1 call of unknown price");
  assert.equal(priced("0.41", 4, 0), "$0.41");
});

test("counts", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(null), "–");
  assert.equal(plural(1, "call"), "1 call");
  assert.equal(plural(0, "call"), "0 calls");
  assert.equal(plural(2, "reply", "replies"), "2 replies");
});

test("a share is neither all nor nothing by rounding", () => {
  assert.equal(percent(1), "100%");
  assert.equal(percent(0.9999), "> 99.9%");
  assert.equal(percent(0.987), "98.7%");
  assert.equal(percent(0.00001), "< 0.1%");
  assert.equal(percent(0), "0%");
  assert.equal(percent(null), "–");
});
