/** The panel beside the timeline: everything about the bar that was chosen. */

import { Link, h } from "./host.js";
import { AttemptFacts } from "./attempt_panel.js";
import { money, plural } from "./money.js";
import { Pairs, SidePanel, StateBadge, Time, VirtualList } from "./parts.js";
import { Empty } from "./states.js";
import { StepFacts } from "./step_panel.js";
import { duration } from "./time.js";
import { barTitle, mapFacts } from "./timeline_words.js";
import { UnitList } from "./unit_list.js";

/** @typedef {import("./timeline_model.js").Bar} Bar */
/** @typedef {import("./timeline_model.js").Model} Model */

/**
 * @param {{shown: string, model: Model, address: import("./task_page.js").Address, generation: string | number | null,
 *   onClose: () => void, onSelect: (bar: {id: string}) => void}} props `shown`: kind and id of what is chosen
 */
export function TimelinePanel({ shown, model, address, generation, onClose, onSelect }) {
  const place = shown.indexOf(":");
  const [kind, id] = [shown.slice(0, place), shown.slice(place + 1)];
  if (kind === "step") return h(SidePanel, { title: stepTitle(model, id), onClose }, h(StepFacts, { address, id, generation }));
  if (kind === "attempt") {
    const lane = model.lanes.find((one) => one.id === id);
    return h(SidePanel, { title: lane ? `Attempt ${lane.attempt.attempt}` : "Attempt", onClose }, lane ? h(AttemptFacts, { lane, address }) : h(Gone));
  }
  const bar = [...model.maps, ...model.lanes.flatMap((lane) => lane.bars)].find((one) => one.id === shown);
  return h(SidePanel, { title: bar ? barTitle(bar) : "No longer there", onClose }, bar ? h(Facts, { bar, address, generation, onSelect }) : h(Gone));
}

const Gone = () => h(Empty, { title: "No longer there" }, "What was chosen is not part of the timeline any more.");

/**
 * @param {Model} model
 * @param {string} key
 */
function stepTitle(model, key) {
  for (const lane of model.lanes) {
    for (const bar of lane.bars) {
      const steps = bar.what.kind === "step" ? [bar.what.step] : bar.what.kind === "many" ? bar.what.steps : [];
      const found = steps.find((step) => step.key === key);
      if (found) return found.name;
    }
  }
  return "Step";
}

/** @param {{bar: Bar, address: import("./task_page.js").Address, generation: string | number | null, onSelect: (bar: {id: string}) => void}} props */
function Facts({ bar, address, generation, onSelect }) {
  const { what } = bar;
  if (what.kind === "map") {
    return h("div", { className: "aif-stack" }, h("p", {}, mapFacts(what.map)), h(UnitList, { address, map: what.map, generation, onSelect }));
  }
  if (what.kind === "effect") return h(EffectFacts, { effect: what.effect });
  if (what.kind === "many") return h(ManyFacts, { steps: what.steps, onSelect });
  return null;
}

/** @param {{effect: import("./timeline_model.js").Effect}} props */
function EffectFacts({ effect }) {
  const open = effect.state === "in_doubt" || effect.state === "intended";
  const begun = effect.begun_at ? new Date(effect.begun_at).getTime() : null;
  const settled = effect.settled_at ? new Date(effect.settled_at).getTime() : null;
  return h(Pairs, {
    pairs: [
      ["State", h(StateBadge, { state: effect.state })],
      effect.key ? ["Key", h("span", { className: "aif-mono" }, effect.key)] : null,
      ["Begun", h(Time, { at: effect.begun_at })],
      settled !== null && begun !== null ? ["Settled", h("span", {}, h(Time, { at: effect.settled_at }), ` after ${duration(settled - begun)}`)] : null,
      effect.attempt !== null ? ["Attempt", String(effect.attempt)] : null,
      effect.certainty ? ["Its owner", effect.certainty] : null,
      open ? ["Answer", h(InboxLink, { number: effect.number })] : null,
    ],
  });
}

/** @param {{number: number}} props */
function InboxLink({ number }) {
  return h(Link, { to: `/plugin/aiflow/inbox?show=${number}` }, "in the inbox");
}

/** @param {{steps: import("./timeline_model.js").Step[], onSelect: (bar: {id: string}) => void}} props */
function ManyFacts({ steps, onSelect }) {
  const cost = steps.reduce((sum, step) => sum + Number(step.cost ?? 0), 0);
  const calls = steps.reduce((sum, step) => sum + step.calls, 0);
  return h(
    "div",
    { className: "aif-stack" },
    h("p", {}, [plural(steps.length, "step"), ...(calls ? [plural(calls, "call"), money(cost)] : [])].join(", ")),
    h(VirtualList, {
      items: steps,
      rowHeight: 32,
      height: 384,
      label: "Steps of this bar",
      render: (/** @type {any} */ step) =>
        h(
          "button",
          { type: "button", className: "aif-list-button", onClick: () => onSelect({ id: `step:${step.key}` }) },
          h("span", { className: "aif-cell-name" }, step.name),
          h("span", { className: "aif-cell-end" }, duration(step.to - step.from)),
        ),
    }),
  );
}
