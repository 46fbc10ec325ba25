/** The timeline as a picture: one time axis, a lane for each attempt, maps folded to one bar each. */

import { Fragment, React, h, useCallback, useMemo, useRef, useState, useTimeZone } from "./host.js";
import { plural } from "./money.js";
import { StateBadge } from "./parts.js";
import { ticks } from "./scale.js";
import { clockTime, duration, moment, utc } from "./time.js";
import { barByKey } from "./timeline_model.js";
import { STATES, barFacts, barLabel, barTitle, signWords, whyEnded } from "./timeline_words.js";

/** @typedef {import("./timeline_model.js").Model} Model */
/** @typedef {import("./timeline_model.js").Bar} Bar */
/** @typedef {import("./timeline_model.js").Lane} Lane */

/** Pixels of one row of bars, with its gap. */
const ROW = 20;

/** @param {number} fraction */
const percent = (fraction) => `${(fraction * 100).toFixed(3)}%`;

/**
 * @param {{model: Model, selected: string | null, onSelect: (bar: {id: string}) => void}} props
 */
export function TimelineChart({ model, selected, onSelect }) {
  const chart = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [hover, setHover] = useState(/** @type {{bar: Bar, x: number, y: number} | null} */ (null));
  const byId = useMemo(
    () => new Map([...model.lanes.flatMap((lane) => lane.bars), ...model.maps].map((bar) => [bar.id, bar])),
    [model],
  );
  const barAt = useCallback(
    (/** @type {EventTarget | null} */ target) => {
      const element = target instanceof Element ? target.closest("[data-bar]") : null;
      return element ? byId.get(element.getAttribute("data-bar") ?? "") : undefined;
    },
    [byId],
  );
  const show = useCallback(
    (/** @type {any} */ event) => {
      const bar = barAt(event.target);
      const box = chart.current?.getBoundingClientRect();
      if (!bar || !box) return setHover(null);
      const on = event.target.getBoundingClientRect();
      const x = event.type.startsWith("focus") ? on.left + Math.min(on.width / 2, 60) : event.clientX;
      return setHover({ bar, x: Math.max(0, Math.min(x - box.left, box.width)), y: on.bottom - box.top });
    },
    [barAt],
  );
  const choose = useCallback(
    (/** @type {any} */ event) => {
      const bar = barAt(event.target);
      if (bar) onSelect(bar);
    },
    [barAt, onSelect],
  );
  const hide = useCallback(() => setHover(null), []);
  return h(
    "div",
    {
      className: "aif-timeline",
      ref: chart,
      onMouseMove: show,
      onMouseLeave: hide,
      onFocus: show,
      onBlur: hide,
      onClick: choose,
      onKeyDown: (/** @type {any} */ event) => {
        if (event.key === "Escape") hide();
      },
    },
    h(Axis, { model, narrow: selected !== null }),
    model.lanes.map((lane) => h(AttemptLane, { key: lane.id, lane, selected, onSelect })),
    model.maps.map((bar) => h(MapLane, { key: bar.id, bar, selected })),
    hover ? h(Hover, hover) : null,
    h(Legend, { model }),
  );
}

/** @param {{model: Model, narrow: boolean}} props */
function Axis({ model, narrow }) {
  const zone = useTimeZone();
  const marks = useMemo(() => (narrow ? ticks(model.scale, 3, 0.22) : ticks(model.scale, 6, 0.11)), [model, narrow]);
  const fits = narrow ? 0.8 : 0.91;
  const fine = marks.length > 1 && marks[1].ms - marks[0].ms < 1000;
  return h(
    "div",
    { className: "aif-lane aif-axis", "aria-hidden": true },
    h("div", { className: "aif-lane-name aif-muted" }, moment(model.scale.from, zone).slice(0, 10)),
    h(
      "div",
      { className: "aif-axis-line" },
      marks.filter(({ at }) => at <= fits && clear(model, at)).map(({ ms, at }) =>
        h("span", { key: ms, className: "aif-tick", style: { insetInlineStart: percent(at) }, title: utc(ms) }, clockTime(ms, zone, fine)),
      ),
      model.scale.folds.map((fold) =>
        h(
          "span",
          { key: `fold${fold.from}`, className: "aif-fold", style: { insetInlineStart: percent(fold.at) }, title: `${duration(fold.to - fold.from)} in which nothing was at work` },
          "⋯",
        ),
      ),
    ),
  );
}

/**
 * @param {Model} model
 * @param {number} at
 * @returns {boolean} whether a label that begins there reaches into no fold
 */
const clear = (model, at) => model.scale.folds.every((fold) => at > fold.at || fold.at - at > 0.12);

/** @type {(props: {lane: Lane, selected: string | null, onSelect: (bar: {id: string}) => void}) => any} */
const AttemptLane = React.memo(function AttemptLane({ lane, selected, onSelect }) {
  const { attempt } = lane;
  const why = whyEnded(attempt);
  const name = `Attempt ${attempt.attempt}`;
  const found = lane.found > 0 ? `found ${plural(lane.found, "step")} recorded` : signWords(attempt.sign);
  return h(
    "div",
    { className: "aif-lane" },
    h(
      "div",
      { className: "aif-lane-name" },
      h(
        "div",
        { className: "aif-row" },
        h("button", { type: "button", className: "aif-lane-button", "data-choice": `attempt:${lane.id}`, onClick: () => onSelect({ id: `attempt:${lane.id}` }) }, name),
        h(StateBadge, { state: attempt.outcome, title: why }),
      ),
      h("div", { className: "aif-lane-note", title: `${signWords(attempt.sign)}; process ${attempt.pid} on ${attempt.host}` }, found),
      why ? h("div", { className: "aif-lane-note aif-clamp", title: why }, why) : null,
    ),
    h(Track, { label: `Steps of attempt ${attempt.attempt}, ${attempt.outcome}`, bars: lane.bars, rows: lane.rows, selected, lane }),
  );
});

/** @type {(props: {bar: Bar, selected: string | null}) => any} */
const MapLane = React.memo(function MapLane({ bar, selected }) {
  return h(
    "div",
    { className: "aif-lane" },
    h(
      "div",
      { className: "aif-lane-name" },
      h("div", { className: "aif-row" }, h("strong", { className: "aif-mono" }, barTitle(bar)), h("span", { className: "aif-badge" }, "map")),
      h("div", { className: "aif-lane-note" }, barFacts(bar)),
    ),
    h(Track, { label: `Map ${barTitle(bar)}`, bars: [bar], rows: 1, selected, lane: null }),
  );
});

/**
 * Bars of one lane: one stop of the Tab key, arrows walk along.
 *
 * @param {{label: string, bars: Bar[], rows: number, selected: string | null, lane: Lane | null}} props
 */
function Track({ label, bars, rows, selected, lane }) {
  const [active, setActive] = useState(/** @type {string | null} */ (null));
  const stop = bars.some((bar) => bar.id === active) ? active : (bars.find((bar) => bar.id === selected)?.id ?? bars[0]?.id);
  const walk = (/** @type {any} */ event) => {
    const next = barByKey(bars, stop ?? null, event.key);
    if (next === null) return;
    event.preventDefault();
    setActive(next);
    event.currentTarget.querySelector(`[data-bar="${CSS.escape(next)}"]`)?.focus();
  };
  const span = lane
    ? h("span", { className: `aif-span aif-span-${lane.attempt.outcome}`, style: { insetInlineStart: percent(lane.left), width: percent(lane.width) } })
    : null;
  return h(
    "div",
    { className: "aif-track", role: "group", "aria-label": label, style: { height: rows * ROW + 8 }, onKeyDown: walk },
    span,
    bars.map((bar) =>
      h(
        "button",
        {
          key: bar.id,
          type: "button",
          "data-bar": bar.id,
          tabIndex: bar.id === stop ? 0 : -1,
          "aria-label": barLabel(bar),
          "aria-pressed": bar.id === selected,
          className: `aif-bar aif-bar-${bar.state}${bar.what.kind === "step" ? "" : ` aif-bar-${bar.what.kind}`}`,
          style: { insetInlineStart: percent(bar.left), width: percent(bar.width), top: 4 + bar.row * ROW },
        },
        bar.what.kind === "map" ? h(MapShare, { map: bar.what.map }) : null,
      ),
    ),
    bars.length === 0 ? h("span", { className: "aif-track-empty" }, "no step of its own") : null,
  );
}

/** @param {{map: import("./timeline_model.js").MapBar}} props The share that has no result, and how many items there are. */
function MapShare({ map }) {
  const share = map.failed > 0 && map.failed < map.units ? map.failed / map.units : 0;
  return h(
    Fragment,
    {},
    share > 0 ? h("span", { className: "aif-bar-part aif-bar-failed", style: { width: percent(share) } }) : null,
    h("span", { className: "aif-bar-text" }, plural(map.units, "item")),
  );
}

/** @param {{bar: Bar, x: number, y: number}} props */
function Hover({ bar, x, y }) {
  const zone = useTimeZone();
  return h(
    "div",
    { className: "aif-hover", style: { left: `clamp(0px, ${x}px - 140px, 100% - 290px)`, top: y + 6 }, "aria-hidden": true },
    h("strong", {}, barTitle(bar)),
    h("div", {}, barFacts(bar)),
    h("div", { className: "aif-muted" }, `from ${clockTime(bar.from, zone, true)} to ${clockTime(bar.to, zone, true)}`),
  );
}

/** @param {{model: Model}} props */
function Legend({ model }) {
  const bars = [...model.lanes.flatMap((lane) => lane.bars), ...model.maps];
  const shown = new Set(bars.map((bar) => bar.state));
  if (bars.some(({ what }) => what.kind === "map" && what.map.failed > 0)) shown.add("failed");
  return h(
    "div",
    { className: "aif-legend" },
    STATES.filter(({ state }) => shown.has(state)).map(({ state, label, means }) =>
      h(
        "span",
        { key: state, title: means },
        h("span", { className: `aif-swatch aif-bar-${state}`, "aria-hidden": true }),
        label,
        h("span", { className: "aif-hidden" }, `: ${means}`),
      ),
    ),
    bars.some(({ what }) => what.kind === "effect")
      ? h("span", { key: "effect", title: "changes the world outside" }, h("span", { className: "aif-swatch aif-swatch-effect", "aria-hidden": true }), "effect")
      : null,
    model.scale.folds.length ? h("span", { key: "fold" }, h("span", { "aria-hidden": true }, "⋯ "), "a pause, folded") : null,
    model.aggregated
      ? h(Fragment, { key: "many" }, h("span", {}, `${plural(model.steps, "step")}: those close together are one bar; choose it for the list`))
      : null,
  );
}
