/** What differs between two generations of a task, or two runs of a DAG, step by step. */

import { get, useLook } from "./api.js";
import { h, useState } from "./host.js";
import { written } from "./inbox_words.js";
import { count, money } from "./money.js";
import { Badge, Button, Dialog } from "./parts.js";
import { whenAnswered } from "./pieces.js";
import { Empty } from "./states.js";
import { folded, lineDiff } from "./text_diff.js";
import { duration } from "./time.js";

/**
 * @typedef {{dag_id: string, run_id: string, task_id: string, map_index?: number}} Address
 * @typedef {{address?: Address, generationA?: number, generationB?: number, dagId?: string, runA?: string, runB?: string}} Pair
 * @typedef {"same" | "changed" | "new" | "gone"} Verdict
 */

const VERDICTS = /** @type {const} */ ({
  changed: { label: "changed", tone: "warning" },
  new: { label: "new", tone: "success" },
  gone: { label: "gone", tone: "failed" },
  same: { label: "same", tone: "neutral" },
});

/** @param {Pair & {open?: boolean, onClose: () => void}} props */
export function DiffDialog({ open = true, onClose, ...pair }) {
  return h(Dialog, { title: titleOf(pair), open, onClose, wide: true }, h("div", { className: "aif-dialog-content" }, open ? h(DiffView, pair) : null));
}

/** @param {Pair} pair */
function titleOf(pair) {
  return pair.runA ? `${pair.runA} against ${pair.runB}` : `Generation ${pair.generationA} against ${pair.generationB}`;
}

/** @param {Pair} pair */
export function DiffView(pair) {
  const query = pair.runA
    ? { dag_id: pair.dagId, run_a: pair.runA, run_b: pair.runB }
    : { ...pair.address, generation_a: pair.generationA, generation_b: pair.generationB };
  const look = useLook((signal) => get("/diff", query, { signal }), JSON.stringify(query), null);
  return whenAnswered(look, "this comparison", (data) => h(Diff, { data }));
}

/** @param {{data: any}} props */
function Diff({ data }) {
  const [shown, setShown] = useState(/** @type {Verdict | "all"} */ ("all"));
  const counts = data.counts ?? {};
  const different = (counts.changed ?? 0) + (counts.new ?? 0) + (counts.gone ?? 0);
  if (data.items.length === 0) return h(Empty, { title: "Nothing to compare" }, "Neither side recorded a step.");
  const items = data.items.filter((/** @type {any} */ item) => (shown === "all" ? true : item.verdict === shown));
  return h(
    "div",
    { className: "aif-stack" },
    h(
      "div",
      { className: "aif-row", role: "group", "aria-label": "Show only" },
      h(Button, { small: true, "aria-pressed": shown === "all", onClick: () => setShown("all") }, `All ${count(data.items.length)}`),
      Object.entries(VERDICTS).map(([verdict, { label }]) =>
        h(
          Button,
          {
            key: verdict,
            small: true,
            disabled: !counts[verdict],
            "aria-pressed": shown === verdict,
            onClick: () => setShown(/** @type {Verdict} */ (verdict)),
          },
          `${count(counts[verdict] ?? 0)} ${label}`,
        ),
      ),
    ),
    different === 0 ? h("p", { className: "aif-summary" }, "Every step is the same on both sides.") : null,
    data.truncated ? h("p", { className: "aif-muted" }, "There are more steps than are listed here; the counts are of all.") : null,
    h("ol", { className: "aif-diff" }, items.map((/** @type {any} */ item, /** @type {number} */ place) => h(Item, { key: `${item.name} ${place}`, item }))),
  );
}

/** @param {{item: any}} props */
function Item({ item }) {
  const [open, setOpen] = useState(item.verdict === "changed" && texts(item) !== null);
  const words = VERDICTS[/** @type {Verdict} */ (item.verdict)];
  const both = item.verdict === "changed" || item.verdict === "same";
  return h(
    "li",
    { className: "aif-diff-item" },
    h(
      "div",
      { className: "aif-row" },
      h(Badge, { tone: words.tone }, words.label),
      h("strong", {}, item.name),
      h("span", { className: "aif-muted" }, item.kind),
      item.changed?.length ? h("span", {}, `changed: ${item.changed.join(", ")}`) : null,
      h("span", { className: "aif-muted aif-diff-sides" }, both ? sides(item.before, item.after) : side(item.before ?? item.after)),
      both && item.verdict === "changed" && texts(item) !== null
        ? h(Button, { small: true, "aria-expanded": open, onClick: () => setOpen(!open) }, open ? "Hide results" : "Compare results")
        : null,
    ),
    open ? h(TextDiff, { item }) : null,
  );
}

/**
 * Give both results as texts, where both are there.
 *
 * @param {any} item
 * @returns {[string, string] | null}
 */
function texts(item) {
  const [before, after] = [item.before?.result, item.after?.result];
  if (before === undefined || after === undefined || before === null || after === null) return null;
  return [written(before), written(after)];
}

/** @param {any} before @param {any} after */
function sides(before, after) {
  const [left, right] = [side(before), side(after)];
  return left === right ? left : `${left} → ${right}`;
}

/** @param {any} one */
function side(one) {
  if (!one) return "";
  const parts = [];
  if (one.duration_ms !== undefined && one.duration_ms !== null) parts.push(duration(one.duration_ms));
  if (one.cost !== undefined && one.cost !== null) parts.push(money(one.cost));
  return parts.join(", ");
}

/** @param {{item: any}} props */
function TextDiff({ item }) {
  const both = texts(item);
  if (both === null) return null;
  const lines = folded(lineDiff(...both));
  if (lines.every((line) => line.mark === "folded")) return h("p", { className: "aif-muted" }, "The results are equal.");
  return h(
    "div",
    { className: "aif-textdiff", role: "table", "aria-label": `Results of ${item.name}`, tabIndex: 0 },
    lines.map((line, place) =>
      line.mark === "folded"
        ? h("div", { key: place, role: "row", className: "aif-line aif-line-folded" }, h("span", { role: "cell" }, `${count(line.count)} equal lines`))
        : h(
            "div",
            { key: place, role: "row", className: `aif-line aif-line-${line.mark}` },
            h("span", { role: "cell", className: "aif-line-number" }, line.before ?? ""),
            h("span", { role: "cell", className: "aif-line-number" }, line.after ?? ""),
            h("span", { role: "cell", className: "aif-line-mark" }, { same: "\u00a0", gone: "−", new: "+" }[line.mark]),
            h("span", { role: "cell", className: "aif-line-text" }, line.text || "\u00a0"),
          ),
    ),
  );
}
