/**
 * What the timeline shows, worked out of the API's answer; pure.
 *
 * Attempts are lanes. A step's bar stands in the lane of the attempt that recorded it. Steps that overlap in time are
 * packed into rows of their lane. Above `MANY` bars those of one state that fall into the same slice of the axis are one.
 */

import { foldedScale } from "./scale.js";

/** @typedef {"ran" | "replayed" | "reused" | "failed" | "in_doubt" | "waiting"} BarState */
/**
 * @typedef {{fence?: number, attempt: number, generation: number, sign: string, try_number: number, started_at: string,
 *   ended_at: string | null, outcome: string, reason: string | null, host: string, pid: number}} Attempt
 */
/**
 * @typedef {{key: string, kind: string, name: string, map: string | null, item: string | null, attempt: number, lane: number,
 *   from: number, to: number, state: BarState, cost: string | null, calls: number}} Step
 */
/**
 * @typedef {{kind: "step", step: Step} | {kind: "map", map: MapBar} | {kind: "effect", effect: Effect}
 *   | {kind: "many", count: number, steps: Step[]}} What
 */
/** @typedef {{id: string, state: BarState, from: number, to: number, left: number, width: number, row: number, what: What}} Bar */
/**
 * @typedef {{name: string, units: number, steps: number, done: number, failed: number, calls: number, cost: string | null,
 *   first_at: string, last_at: string}} MapBar
 */
/**
 * @typedef {{number: number, name: string, key: string | null, state: string, begun_at: string | null,
 *   settled_at: string | null, fence?: number | null, attempt: number | null, certainty: string | null}} Effect
 */
/** @typedef {{attempt: Attempt, id: string, from: number, to: number, left: number, width: number, rows: number, bars: Bar[], found: number, recorded: number}} Lane */
/** @typedef {{lanes: Lane[], maps: Bar[], scale: import("./scale.js").Scale, steps: number, aggregated: boolean}} Model */

/** More bars than this are not painted one by one: 8,750 took 400 ms. */
export const MANY = 2000;
/** Slices of the axis when bars are put together: about one for each three pixels of a wide screen. */
const SLICES = 400;
/** Rows of one lane; what does not fit lies in the last one. */
export const ROWS = 6;

/**
 * Turn the rows of an answer into objects.
 *
 * @param {{columns: string[], rows: any[][]}} table
 * @returns {Step[]}
 */
export function stepsOf({ columns, rows }) {
  const place = Object.fromEntries(columns.map((name, index) => [name, index]));
  return rows.map((row) => {
    const from = row[place.started_at_ms] ?? row[place.ended_at_ms];
    return {
      key: row[place.key],
      kind: row[place.kind],
      name: row[place.name],
      map: row[place.map] ?? null,
      item: row[place.item] ?? null,
      attempt: row[place.attempt],
      lane: row[place.fence] ?? row[place.attempt],
      from,
      to: Math.max(from, row[place.ended_at_ms] ?? from),
      state: row[place.state],
      cost: row[place.cost] ?? null,
      calls: row[place.calls] ?? 0,
    };
  });
}

/** @param {string | null | undefined} text */
const at = (text) => (text ? new Date(text).getTime() : null);

/**
 * @param {any} answer of GET /timeline
 * @param {number} now ms since the epoch
 * @returns {Model}
 */
export function modelOf(answer, now) {
  const steps = stepsOf(answer.steps);
  /** @type {Attempt[]} */
  const attempts = attemptsOf(answer);
  const spans = attempts.map((one) => spanOf(one, steps, now));
  const scale = foldedScale([
    ...spans,
    ...answer.maps.map((/** @type {MapBar} */ map) => ({ from: at(map.first_at) ?? now, to: at(map.last_at) ?? now })),
  ]);
  const aggregated = steps.length > MANY;
  /** @type {Map<number, Bar[]>} */
  const bars = new Map(attempts.map((one) => [laneOf(one), []]));
  const last = attempts.length ? laneOf(attempts[attempts.length - 1]) : 0;
  /** @param {number | null} lane */
  const into = (lane) => bars.get(lane ?? last) ?? bars.get(last) ?? [];
  if (aggregated) for (const { lane, bar } of slices(steps, scale)) into(lane).push(bar);
  else for (const step of steps) into(step.lane).push(barOf(step, scale));
  for (const effect of answer.effects) {
    const bar = effectBar(effect, scale, now, last);
    if (bar) into(effect.fence ?? effect.attempt).push(bar);
  }
  const recorded = countBy(steps);
  let found = 0;
  const lanes = attempts.map((attempt, index) => {
    const own = (bars.get(laneOf(attempt)) ?? []).sort((a, b) => a.from - b.from || a.to - b.to);
    const span = spans[index];
    const left = scale.at(span.from);
    const mine = recorded.get(laneOf(attempt)) ?? 0;
    const one = {
      attempt,
      id: String(laneOf(attempt)),
      from: span.from,
      to: span.to,
      left,
      width: scale.at(span.to) - left,
      rows: packed(own),
      bars: own,
      found: found + itemsBefore(answer.maps, span.from),
      recorded: mine,
    };
    found += mine;
    return one;
  });
  return { lanes, maps: mapBars(answer.maps, scale, lanes.at(-1)?.from ?? 0), scale, steps: steps.length, aggregated };
}

/** A try that was interrupted and went on is several attempts of one number, each with a fence of its own. */
const laneOf = (/** @type {Attempt} */ attempt) => attempt.fence ?? attempt.attempt;

/** @param {any} answer @returns {Attempt[]} those of the generation that is shown */
function attemptsOf(answer) {
  const own = answer.attempts.filter((/** @type {Attempt} */ one) => one.generation === answer.generation);
  return own.length > 0 ? own : answer.attempts;
}

/**
 * @param {Attempt} attempt
 * @param {Step[]} steps
 * @param {number} now
 */
function spanOf(attempt, steps, now) {
  const from = at(attempt.started_at) ?? now;
  const end = at(attempt.ended_at);
  if (end !== null) return { from, to: Math.max(from, end) };
  if (attempt.outcome === "running") return { from, to: Math.max(from, now) };
  const last = steps.reduce((most, one) => (one.lane === laneOf(attempt) ? Math.max(most, one.to) : most), from);
  return { from, to: last };
}

/**
 * @param {MapBar[]} maps
 * @param {number} moment
 * @returns {number} items of maps that had ended by then
 */
function itemsBefore(maps, moment) {
  return maps.reduce((sum, map) => sum + ((at(map.last_at) ?? Infinity) <= moment ? map.units : 0), 0);
}

/** @param {Step[]} steps */
function countBy(steps) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const step of steps) counts.set(step.lane, (counts.get(step.lane) ?? 0) + 1);
  return counts;
}

/**
 * @param {Step} step
 * @param {import("./scale.js").Scale} scale
 * @returns {Bar}
 */
function barOf(step, scale) {
  const left = scale.at(step.from);
  const width = scale.at(step.to) - left;
  const what = /** @type {const} */ ({ kind: "step", step });
  return { id: `step:${step.key}`, state: step.state, from: step.from, to: step.to, left, width, row: 0, what };
}

/** How an effect that did not succeed looks as a bar. */
const EFFECT_BARS = /** @type {Record<string, BarState>} */ ({
  in_doubt: "in_doubt",
  failed: "failed",
  intended: "waiting",
  waiting: "waiting",
});

/**
 * @param {Effect} effect
 * @param {import("./scale.js").Scale} scale
 * @param {number} now
 * @param {number} last the lane of the last attempt: what an earlier one did was not done again
 * @returns {Bar | null}
 */
function effectBar(effect, scale, now, last) {
  const from = at(effect.begun_at);
  if (from === null) return null;
  const state = EFFECT_BARS[effect.state] ?? ((effect.fence ?? effect.attempt ?? last) < last ? "replayed" : "ran");
  const to = Math.max(from, at(effect.settled_at) ?? Math.min(now, scale.to));
  const left = scale.at(from);
  const what = /** @type {const} */ ({ kind: "effect", effect });
  return { id: `effect:${effect.number}`, state, from, to, left, width: scale.at(to) - left, row: 0, what };
}

/**
 * @param {MapBar[]} maps
 * @param {import("./scale.js").Scale} scale
 * @param {number} last when the last attempt began: a map that had ended by then was taken from the record
 * @returns {Bar[]}
 */
function mapBars(maps, scale, last) {
  return maps.map((map) => {
    const from = at(map.first_at) ?? scale.from;
    const to = Math.max(from, at(map.last_at) ?? from);
    const left = scale.at(from);
    const state = map.failed >= map.units ? "failed" : to < last ? "replayed" : "ran";
    const what = /** @type {const} */ ({ kind: "map", map });
    return { id: `map:${map.name}`, state, from, to, left, width: scale.at(to) - left, row: 0, what };
  });
}

/**
 * Put steps of one attempt and state that begin in the same slice of the axis into one bar.
 *
 * @param {Step[]} steps
 * @param {import("./scale.js").Scale} scale
 * @returns {{lane: number, bar: Bar}[]}
 */
function slices(steps, scale) {
  /** @type {Map<string, Step[]>} */
  const groups = new Map();
  for (const step of steps) {
    const name = `${step.lane}|${step.state}|${Math.min(SLICES - 1, Math.floor(scale.at(step.from) * SLICES))}`;
    const group = groups.get(name);
    if (group) group.push(step);
    else groups.set(name, [step]);
  }
  return [...groups].map(([name, group]) => {
    if (group.length === 1) return { lane: group[0].lane, bar: barOf(group[0], scale) };
    let from = Infinity;
    let to = -Infinity;
    for (const one of group) {
      from = Math.min(from, one.from);
      to = Math.max(to, one.to);
    }
    const left = scale.at(from);
    const what = /** @type {const} */ ({ kind: "many", count: group.length, steps: group });
    const bar = { id: `many:${name}`, state: group[0].state, from, to, left, width: scale.at(to) - left, row: 0, what };
    return { lane: group[0].lane, bar };
  });
}

/**
 * Give each bar a row in which it overlaps none; the last row takes what does not fit.
 *
 * @param {Bar[]} bars by their beginning; changed
 * @returns {number} rows in use, at least 1
 */
export function packed(bars) {
  /** @type {number[]} */
  const ends = [];
  for (const bar of bars) {
    let row = ends.findIndex((end) => end <= bar.from);
    if (row === -1) row = Math.min(ends.length, ROWS - 1);
    ends[row] = Math.max(ends[row] ?? -Infinity, bar.to);
    bar.row = row;
  }
  return Math.max(1, ends.length);
}

/**
 * Choose the bar that an arrow key leads to.
 *
 * @param {Bar[]} bars
 * @param {string | null} current
 * @param {string} key as the keyboard names it
 * @returns {string | null} id; null: the key leads nowhere
 */
export function barByKey(bars, current, key) {
  if (bars.length === 0) return null;
  const place = bars.findIndex((bar) => bar.id === current);
  const last = bars.length - 1;
  /** @type {Record<string, number>} */
  const next = {
    ArrowRight: Math.min(last, place + 1),
    ArrowDown: Math.min(last, place + 1),
    ArrowLeft: Math.max(0, place - 1),
    ArrowUp: Math.max(0, place - 1),
    Home: 0,
    End: last,
    PageDown: Math.min(last, place + 25),
    PageUp: Math.max(0, place - 25),
  };
  return key in next ? bars[next[key]].id : null;
}
