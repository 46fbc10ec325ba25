import assert from "node:assert/strict";
import { test } from "node:test";

import { clockTime, duration, moment, since, utc } from "../../../airflow_aiflow/ui/static/time.js";

test("durations have the unit that people would use", () => {
  const said = [null, 0, 0.4, 12, 999.6, 1200, 9940, 59_400, 60_000, 185_000, 3_599_900, 7_440_000, 90_000_000].map(duration);
  assert.deepEqual(said, ["–", "0 ms", "< 1 ms", "12 ms", "1.0 s", "1.2 s", "9.9 s", "59 s", "1 min", "3 min 5 s", "1 h", "2 h 4 min", "1 d 1 h"]);
});

test("a moment is written in the zone that was chosen, and in UTC for the hover", () => {
  const iso = "2026-11-29T23:30:05.250Z";
  assert.equal(moment(iso, "Europe/Berlin"), "2026-11-30 00:30:05");
  assert.equal(clockTime(iso, "UTC", true), "23:30:05.250");
  assert.equal(utc(iso), "2026-11-29 23:30:05 UTC");
  assert.deepEqual([moment(null), utc(undefined), moment("never")], ["–", "", "–"]);
});

test("an age is never negative", () => {
  assert.equal(since("2026-01-01T00:00:10Z", Date.parse("2026-01-01T00:00:05Z")), "0 ms");
  assert.equal(since("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:02:00Z")), "2 min");
});
