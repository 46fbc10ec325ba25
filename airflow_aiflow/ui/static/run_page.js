/** The tab of a run: its executions as a tree that follows the DAG, and what the run paid and saved. */

import { core, useLook, usePoll } from "./api.js";
import { Link, h, useMemo, useState } from "./host.js";
import { count, money, plural, priced } from "./money.js";
import { Figure, Figures, Section, StateBadge, Time } from "./parts.js";
import { timelineAddress } from "./places.js";
import { ClearButton } from "./preview.js";
import { barsOf, totalsOf, treeOf } from "./run_tree.js";
import { Empty, Failed, Loading, Stale } from "./states.js";
import { duration } from "./time.js";

/** @typedef {import("./run_tree.js").Line} Line */
/** @typedef {import("./run_tree.js").Execution} Execution */

/** Executions asked for: of a run with more, the first ones are shown, with a note. */
const LIMIT = 1000;

/** @param {{dagId: string, runId: string}} props */
export function RunPage({ dagId, runId }) {
  const look = usePoll("/executions", { dag_id: dagId, run_id: runId, limit: LIMIT });
  const tasks = useLook(
    (signal) => core("GET", `api/v2/dags/${encodeURIComponent(dagId)}/tasks`, undefined, signal),
    `tasks of ${dagId}`,
    null,
  );
  if (!look.data) {
    return look.error ? h(Failed, { error: look.error, retry: look.reload, what: "this run" }) : h(Loading, { label: "Reading the ledger" });
  }
  if (look.data.items.length === 0) {
    return h(
      "div",
      { className: "aif-answered" },
      h(Stale, look),
      h(Empty, { title: "Nothing recorded of this run" }, "None of its tasks has begun work that AI Flow records."),
    );
  }
  return h(
    "div",
    { className: "aif-answered" },
    h(Stale, look),
    h(Totals, { answer: look.data }),
    h(Tree, { dagId, runId, answer: look.data, tasks: tasks.data?.tasks ?? [], onCleared: look.reload }),
  );
}

/** @param {{answer: any}} props */
function Totals({ answer }) {
  const totals = totalsOf(answer.items);
  return h(
    Figures,
    { label: "What this run paid and saved" },
    h(Figure, { label: "Paid", value: totals.calls > 0 ? priced(String(totals.cost), totals.calls, totals.unpriced) : money("0"), note: plural(totals.calls, "model call") }),
    h(Figure, { label: "Saved by replay", value: money(totals.replay.cost), note: `${plural(totals.replay.calls, "call")} not paid again` }),
    h(Figure, { label: "Saved by reuse", value: money(totals.reuse.cost), note: `${plural(totals.reuse.calls, "call")} taken from other runs` }),
    h(Figure, { label: "Effects done", value: count(totals.done), note: totals.recoveries > 0 ? plural(totals.recoveries, "recovery", "recoveries") : "no recovery was needed" }),
    h(Figure, {
      label: "In doubt",
      value: count(totals.inDoubt),
      tone: totals.inDoubt > 0 ? "warning" : undefined,
      note: totals.inDoubt > 0 ? h(Link, { to: "/plugin/aiflow/inbox" }, "answer in the inbox") : "nothing to answer",
    }),
  );
}

/** @param {{dagId: string, runId: string, answer: any, tasks: any[], onCleared: () => void}} props */
function Tree({ dagId, runId, answer, tasks, onCleared }) {
  const [open, setOpen] = useState(/** @type {Set<string>} */ (new Set()));
  const lines = useMemo(() => treeOf(tasks, answer.items), [tasks, answer]);
  const place = useMemo(() => barsOf(answer.items, Date.now()), [answer]);
  const toggle = (/** @type {string} */ id) =>
    setOpen((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const rows = lines.flatMap((line) => {
    const own = h(Row, { key: line.taskId, line, place, toggle, open: open.has(line.taskId), dagId, runId });
    if (line.executions.length < 2 || !open.has(line.taskId)) return [own];
    return [own, ...line.executions.map((one) => h(MappedRow, { key: `${line.taskId}/${one.map_index}`, one, depth: line.depth + 1, place, dagId, runId }))];
  });
  return h(
    Section,
    { title: "Tasks", id: "aif-tasks-title", actions: h(ClearButton, { dagId, runId, onCleared }) },
    answer.next ? h("p", { className: "aif-stale" }, `Only the first ${count(answer.items.length)} executions are shown.`) : null,
    h(
      "div",
      { className: "aif-table-wrap", tabIndex: 0, role: "region", "aria-label": "Table of the tasks" },
      h(
        "table",
        { className: "aif-table aif-tree" },
        h("caption", { className: "aif-hidden" }, "Tasks of this run in the order of the DAG"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Task"),
            h("th", { scope: "col" }, "State"),
            h("th", { scope: "col", className: "aif-tree-when" }, "When"),
            h("th", { scope: "col", className: "aif-number" }, "Attempts"),
            h("th", { scope: "col", className: "aif-number" }, "Steps"),
            h("th", { scope: "col", className: "aif-number" }, "Paid"),
            h("th", { scope: "col", className: "aif-number" }, "Saved"),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
  );
}

/** @param {{line: Line, place: import("./run_tree.js").Place, toggle: (id: string) => void, open: boolean, dagId: string, runId: string}} props */
function Row({ line, place, toggle, open, dagId, runId }) {
  const { executions } = line;
  if (executions.length === 0) {
    return h(
      "tr",
      { className: "aif-muted" },
      h("th", { scope: "row", className: "aif-tree-name" }, h(Indent, { depth: line.depth }), line.taskId),
      h("td", { colSpan: 6 }, line.ours ? "nothing recorded yet" : "no task of AI Flow"),
    );
  }
  if (executions.length === 1) {
    const [one] = executions;
    return h(ExecutionRow, { one, depth: line.depth, name: one.map_index >= 0 ? `${line.taskId} [${one.map_index}]` : line.taskId, place, dagId, runId });
  }
  const totals = totalsOf(executions);
  return h(
    "tr",
    {},
    h(
      "th",
      { scope: "row", className: "aif-tree-name" },
      h(Indent, { depth: line.depth }),
      h(
        "button",
        { type: "button", className: "aif-lane-button", "aria-expanded": open, onClick: () => toggle(line.taskId) },
        h("span", { "aria-hidden": true }, open ? "▾ " : "▸ "),
        line.taskId,
      ),
      h("span", { className: "aif-muted" }, ` × ${count(executions.length)}`),
    ),
    h("td", {}, h("div", { className: "aif-row" }, statesOf(executions).map(([state, number]) => h(StateBadge, { key: state, state, title: plural(number, "instance") })))),
    h("td", { className: "aif-tree-when" }, h(Bars, { executions, place })),
    h("td", { className: "aif-number" }, count(executions.reduce((sum, one) => sum + one.attempts, 0))),
    h("td", { className: "aif-number" }, count(executions.reduce((sum, one) => sum + one.steps, 0))),
    h("td", { className: "aif-number" }, totals.calls > 0 ? priced(String(totals.cost), totals.calls, totals.unpriced) : "–"),
    h("td", { className: "aif-number" }, savedText(totals)),
  );
}

/** @param {{one: Execution, depth: number, place: import("./run_tree.js").Place, dagId: string, runId: string}} props */
const MappedRow = ({ one, ...rest }) => h(ExecutionRow, { one, name: `[${one.map_index}]`, ...rest });

/** @param {{one: Execution, depth: number, name: string, place: import("./run_tree.js").Place, dagId: string, runId: string}} props */
function ExecutionRow({ one, depth, name, place, dagId, runId }) {
  const to = timelineAddress({ dag_id: dagId, run_id: runId, task_id: one.task_id, map_index: one.map_index });
  const totals = totalsOf([one]);
  const doubts = one.effects.in_doubt;
  return h(
    "tr",
    {},
    h("th", { scope: "row", className: "aif-tree-name" }, h(Indent, { depth }), h(Link, { to }, name)),
    h(
      "td",
      {},
      h(
        "div",
        { className: "aif-row" },
        h(StateBadge, { state: one.state, title: one.pause_reason ?? undefined }),
        doubts > 0 ? h(StateBadge, { state: "in_doubt", title: plural(doubts, "effect") }) : null,
      ),
    ),
    h("td", { className: "aif-tree-when" }, h(Bars, { executions: [one], place })),
    h("td", { className: "aif-number" }, count(one.attempts)),
    h("td", { className: "aif-number" }, count(one.steps)),
    h("td", { className: "aif-number" }, one.calls > 0 ? priced(one.cost, one.calls, one.unpriced) : "–"),
    h("td", { className: "aif-number" }, savedText(totals)),
  );
}

/** @param {{depth: number}} props */
function Indent({ depth }) {
  return depth === 0 ? null : h("span", { className: "aif-indent", style: { paddingInlineStart: `${(Math.min(depth, 12) - 1) * 16}px` }, "aria-hidden": true }, "└ ");
}

/** @param {{executions: Execution[], place: import("./run_tree.js").Place}} props */
function Bars({ executions, place }) {
  const shown = executions.slice(0, 200).flatMap((one) => {
    const spot = place(one);
    return spot ? [{ one, ...spot }] : [];
  });
  if (shown.length === 0) return h("span", { className: "aif-muted" }, "–");
  const from = Math.min(...shown.map((one) => one.from));
  const to = Math.max(...shown.map((one) => one.to));
  return h(
    "div",
    { className: "aif-when" },
    h(
      "div",
      { className: "aif-track aif-track-thin" },
      shown.map(({ one, left, width }) =>
        h("span", {
          key: one.map_index,
          className: `aif-mark aif-mark-${one.state}`,
          style: { insetInlineStart: `${left * 100}%`, width: `${width * 100}%` },
        }),
      ),
    ),
    h("span", { className: "aif-lane-note" }, h(Time, { at: from, short: true }), `, ${duration(to - from)}`),
  );
}

/** @param {Execution[]} executions @returns {[string, number][]} */
function statesOf(executions) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { state } of executions) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts];
}

/** @param {import("./run_tree.js").Totals} totals */
function savedText({ replay, reuse }) {
  const calls = replay.calls + reuse.calls;
  return calls > 0 ? `${money(replay.cost + reuse.cost)}, ${plural(calls, "call")}` : "–";
}
