/** Named limits of model calls and how much of each is used now, over all workers. */

import { usePoll } from "./api.js";
import { h } from "./host.js";
import { count, percent } from "./money.js";
import { PageHead, whenAnswered } from "./pieces.js";
import { Empty } from "./states.js";

/** Share of a limit from which on calls are likely to wait. */
const TIGHT = 0.9;

export function LimitsPage() {
  const look = usePoll("/limits");
  return h(
    "div",
    { className: "aif-stack" },
    h(PageHead, { title: "Limits", lead: "What all workers together may ask of a model in a minute, and what they ask now." }),
    whenAnswered(look, "the limits", (data) => {
      const items = data.items ?? data;
      return items.length === 0
        ? h(Empty, { title: "No limit is set" }, "Set one with ", h("code", {}, "aiflow limits set NAME --rpm 500"), " and name it in a task by ", h("code", {}, "rate_limit="), ".")
        : h("div", { className: "aif-limits" }, items.map((/** @type {any} */ limit) => h(LimitCard, { key: limit.name, limit })));
    }),
  );
}

/** @param {{limit: any}} props */
function LimitCard({ limit }) {
  const used = limit.used ?? {};
  return h(
    "article",
    { className: "aif-batch", "aria-label": `Limit ${limit.name}` },
    h(
      "div",
      { className: "aif-row aif-spread" },
      h("h2", { className: "aif-mono" }, limit.name),
      used.waiting ? h("span", { className: "aif-muted" }, `${count(used.waiting)} waiting`) : null,
    ),
    h(Meter, { label: "Requests a minute", used: used.requests, most: limit.rpm }),
    h(Meter, { label: "Tokens a minute", used: used.tokens, most: limit.tpm }),
    h(Meter, { label: "Calls at once", used: used.running, most: limit.concurrency }),
  );
}

/** @param {{label: string, used: number | null | undefined, most: number | null}} props */
function Meter({ label, used, most }) {
  const part = most ? Math.min(1, (used ?? 0) / most) : null;
  return h(
    "div",
    { className: "aif-meter" },
    h("span", { className: "aif-muted" }, label),
    part === null
      ? h("span", { className: "aif-muted aif-meter-bar" }, most === 0 ? "none allowed" : "no limit")
      : h("progress", {
          className: `aif-progress aif-meter-bar${part >= TIGHT ? " aif-progress-tight" : ""}`,
          max: 1,
          value: part,
          "aria-label": `${label}: ${percent(part)} used`,
        }),
    h("span", { className: "aif-number" }, most === null ? count(used ?? 0) : `${count(used ?? 0)} of ${count(most)}`),
  );
}
