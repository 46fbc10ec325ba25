/** The timeline in words: how attempts began and ended, what a bar is; pure. */

import { count, money, plural } from "./money.js";
import { duration } from "./time.js";

/** @typedef {import("./timeline_model.js").Bar} Bar */
/** @typedef {import("./timeline_model.js").Attempt} Attempt */
/** @typedef {import("./timeline_model.js").BarState} BarState */

/** @type {Record<string, string>} */
const SIGNS = {
  first: "first attempt",
  same: "went on",
  retry: "Airflow's retry",
  ambiguous: "retry",
  cleared: "after a clear",
  made_again: "the run was made again",
  older: "came too late",
  requeue: "requeued by recovery",
  requeued: "requeued by recovery",
};

/** @param {string} sign */
export const signWords = (sign) => SIGNS[sign] ?? sign.replaceAll("_", " ");

/** @type {Record<string, string>} */
const GENERATIONS = {
  first: "the first",
  cleared: "begun by a clear",
  made_again: "the run was made again",
};

/** @param {{generation: number, why: string}} generation */
export const generationWords = ({ generation, why }) => `Generation ${generation}: ${GENERATIONS[why] ?? signWords(why)}`;

/** @type {{state: BarState, label: string, means: string}[]} In the order of the legend. */
export const STATES = [
  { state: "ran", label: "ran", means: "recorded by the last attempt" },
  { state: "replayed", label: "replayed", means: "recorded by an earlier attempt, taken from the record by the later ones" },
  { state: "reused", label: "reused", means: "taken from another run" },
  { state: "failed", label: "failed", means: "an error that is recorded, or an item without a result" },
  { state: "in_doubt", label: "in doubt", means: "begun, and nobody knows whether it happened" },
  { state: "waiting", label: "waiting", means: "open: at work, or waits for a person" },
];

/** @param {BarState} state */
export const stateWords = (state) => STATES.find((one) => one.state === state)?.label ?? state;

/** @param {Bar} bar */
export function barTitle({ what }) {
  if (what.kind === "step") return what.step.item ? `${what.step.name} · ${what.step.item}` : what.step.name;
  if (what.kind === "effect") return what.effect.name;
  if (what.kind === "map") return what.map.name;
  return `${count(what.count)} steps`;
}

/** @param {Bar} bar what is said of it beside its name */
export function barFacts(bar) {
  const { what } = bar;
  const length = duration(bar.to - bar.from);
  if (what.kind === "map") return mapFacts(what.map);
  if (what.kind === "effect") return [`effect, ${what.effect.state.replaceAll("_", " ")}`, length].join(", ");
  if (what.kind === "many") return [stateWords(bar.state), `together ${length}`, names(what.steps)].join(", ");
  const { calls, cost, kind } = what.step;
  const paid = calls > 0 ? [`${plural(calls, "call")}, ${money(cost)}`] : [];
  return [`${kindWords(kind)}, ${stateWords(bar.state)}`, length, ...paid].join(", ");
}

/** @type {Record<string, string>} */
const STEP_KINDS = { step: "step", llm: "model call", effect: "effect", transaction: "transaction", map: "map", ask: "question" };

/** @param {string} kind */
export const kindWords = (kind) => STEP_KINDS[kind] ?? kind.replaceAll("_", " ");

/** @param {import("./timeline_model.js").Step[]} steps */
function names(steps) {
  const different = [...new Set(steps.map((one) => one.name))];
  return different.length <= 2 ? different.join(", ") : `${different.slice(0, 2).join(", ")} and ${different.length - 2} more`;
}

/** @param {import("./timeline_model.js").MapBar & {total?: number | null}} map */
export function mapFacts(map) {
  const total = map.total ?? map.units;
  const done = map.done ?? map.units;
  const items = done === total ? plural(total, "item") : `${count(done)} of ${plural(total, "item")}`;
  const failed = map.failed > 0 ? [`${count(map.failed)} failed`] : [];
  const paid = map.calls > 0 ? [`${plural(map.calls, "call")}, ${money(map.cost)}`] : [];
  return [items, ...failed, ...paid].join(", ");
}

/** @param {Bar} bar all of it, for a reader that sees nothing */
export const barLabel = (bar) => `${barTitle(bar)}: ${barFacts(bar)}`;

/** @type {Record<string, string>} */
const KNOWN_WHY = {
  lapsed: "its lease ran out: the process was gone",
  let_go: "it let go",
};

/** @param {{reason: string | null, outcome: string}} attempt */
export function whyEnded({ reason }) {
  if (!reason) return "";
  // The API names the step in hand.
  return KNOWN_WHY[reason] ?? (reason.startsWith("in '") ? `it was at work ${reason}` : reason);
}
