/** The timeline's bars as a list: the same in words, for long executions and for readers that see no picture. */

import { h, useMemo, useState } from "./host.js";
import { money, plural } from "./money.js";
import { StateBadge, Time, VirtualList } from "./parts.js";
import { Empty } from "./states.js";
import { duration } from "./time.js";
import { barTitle, kindWords, mapFacts, stateWords } from "./timeline_words.js";

/** @typedef {import("./timeline_model.js").Bar} Bar */

const ROW = 34;
const HEIGHT = 520;

/**
 * Flatten a model into its single bars: what was put together for the picture is listed one by one.
 *
 * @param {import("./timeline_model.js").Model} model
 * @returns {Bar[]}
 */
export function flat(model) {
  const bars = model.lanes.flatMap((lane) => lane.bars.flatMap(single));
  return [...bars, ...model.maps].sort((a, b) => a.from - b.from || a.to - b.to);
}

/** @param {Bar} bar @returns {Bar[]} */
function single(bar) {
  if (bar.what.kind !== "many") return [bar];
  return bar.what.steps.map((step) => ({
    ...bar,
    id: `step:${step.key}`,
    from: step.from,
    to: step.to,
    what: /** @type {const} */ ({ kind: "step", step }),
  }));
}

/** @param {Bar} bar */
const attemptOf = ({ what }) => (what.kind === "step" ? what.step.attempt : what.kind === "effect" ? what.effect.attempt : null);

/** @param {{model: import("./timeline_model.js").Model, selected: string | null, onSelect: (bar: Bar) => void}} props */
export function StepList({ model, selected, onSelect }) {
  const [text, setText] = useState("");
  const all = useMemo(() => flat(model), [model]);
  const bars = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    return wanted ? all.filter((bar) => `${barTitle(bar)} ${stateWords(bar.state)}`.toLowerCase().includes(wanted)) : all;
  }, [all, text]);
  return h(
    "div",
    { className: "aif-stack" },
    h(
      "label",
      { className: "aif-row" },
      "Filter",
      h("input", {
        className: "aif-input",
        type: "search",
        value: text,
        placeholder: "name or state",
        onChange: (/** @type {any} */ event) => setText(event.target.value),
      }),
      h("span", { className: "aif-muted", role: "status" }, bars.length === all.length ? plural(all.length, "entry", "entries") : `${bars.length} of ${all.length}`),
    ),
    bars.length === 0 ? h(Empty, { title: "No such step" }) : null,
    bars.length > 0
      ? h(VirtualList, {
          items: bars,
          rowHeight: ROW,
          height: HEIGHT,
          label: "Steps by time",
          render: (/** @type {any} */ bar) => h(Row, { bar, chosen: bar.id === selected, onSelect }),
        })
      : null,
  );
}

/** @param {{bar: Bar, chosen: boolean, onSelect: (bar: Bar) => void}} props */
function Row({ bar, chosen, onSelect }) {
  const { what } = bar;
  const attempt = attemptOf(bar);
  const paid = what.kind === "step" && what.step.calls > 0 ? money(what.step.cost) : "";
  return h(
    "button",
    { type: "button", className: "aif-list-button", "data-choice": bar.id, "aria-pressed": chosen, onClick: () => onSelect(bar) },
    h("span", { className: "aif-cell-time" }, h(Time, { at: bar.from, short: true })),
    h("span", { className: "aif-cell-name" }, barTitle(bar)),
    h("span", { className: "aif-cell-kind aif-muted" }, what.kind === "map" ? mapFacts(what.map) : what.kind === "step" ? kindWords(what.step.kind) : "effect"),
    h("span", { className: "aif-cell-state" }, h(StateBadge, { state: bar.state })),
    h("span", { className: "aif-cell-end aif-muted" }, attempt === null ? "" : `attempt ${attempt}`),
    h("span", { className: "aif-cell-end" }, paid),
    h("span", { className: "aif-cell-end" }, duration(bar.to - bar.from)),
  );
}
