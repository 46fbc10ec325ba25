/** The tab of a DAG: its last runs as small charts, what stands out marked, and the same as a table. */

import { usePoll } from "./api.js";
import { runPageAddress } from "./places.js";
import { Link, h, useNavigate, useSearchParams, useTimeZone } from "./host.js";
import { chartOf } from "./history_chart.js";
import { count, money, plural } from "./money.js";
import { Badge, Figure, Figures, Section, StateBadge, Time } from "./parts.js";
import { Answered, Empty } from "./states.js";
import { duration, moment } from "./time.js";

/** @typedef {import("./history_chart.js").Run} Run */

/** Milliseconds between two looks: a run is minutes long. */
const EVERY = 10000;
const CHOICES = [15, 30, 60, 100];

/** @param {{dagId: string}} props */
export function DagPage({ dagId }) {
  const [params, change] = useSearchParams();
  const limit = CHOICES.includes(Number(params.get("runs"))) ? Number(params.get("runs")) : CHOICES[1];
  const look = usePoll(`/dags/${encodeURIComponent(dagId)}/history`, { limit }, { every: EVERY });
  return h(Answered, {
    look,
    what: "this DAG",
    label: "Reading the ledger",
    children: (/** @type {any} */ answer) => {
      /** @type {Run[]} */
      const newest = answer.items ?? answer;
      if (newest.length === 0) return h(Empty, { title: "No run is recorded yet" }, "Runs of this DAG show here as soon as one of its tasks does work that AI Flow records.");
      return h(History, { dagId, runs: [...newest].sort(byStart), limit, change });
    },
  });
}

/** @param {Run} a @param {Run} b */
const byStart = (a, b) => (a.started_at ?? "").localeCompare(b.started_at ?? "");

/** @param {{dagId: string, runs: Run[], limit: number, change: (changes: Record<string, string | null>) => void}} props oldest first */
function History({ dagId, runs, limit, change }) {
  const sum = (/** @type {(run: Run) => number} */ of) => runs.reduce((total, run) => total + of(run), 0);
  const outliers = runs.filter((run) => run.outlier).length;
  return h(
    "div",
    { className: "aif-answered" },
    h(
      Figures,
      { label: `The last ${plural(runs.length, "run")}` },
      h(Figure, { label: "Saved", value: money(sum((run) => Number(run.saved_cost ?? 0))), note: `${plural(sum((run) => run.calls_saved), "call")} not paid again` }),
      h(Figure, { label: "Paid", value: money(sum((run) => Number(run.cost ?? 0))), note: plural(sum((run) => run.calls_paid), "model call") }),
      h(Figure, { label: "Recoveries", value: count(sum((run) => run.recoveries)), note: `in ${plural(runs.length, "run")}` }),
      h(Figure, { label: "In doubt", value: count(sum((run) => run.in_doubt)), tone: sum((run) => run.in_doubt) > 0 ? "warning" : undefined, note: sum((run) => run.in_doubt) > 0 ? h(Link, { to: "/plugin/aiflow/inbox" }, "answer in the inbox") : "nothing to answer" }),
      h(Figure, { label: "Outliers", value: count(outliers), note: outliers > 0 ? "marked below" : "no run stands out" }),
    ),
    h(
      Section,
      {
        title: "Last runs",
        id: "aif-runs-title",
        actions: h(
          "label",
          { className: "aif-row" },
          "Show",
          h(
            "select",
            { className: "aif-select", value: String(limit), onChange: (/** @type {any} */ event) => change({ runs: event.target.value === String(CHOICES[1]) ? null : event.target.value }) },
            CHOICES.map((one) => h("option", { key: one, value: String(one) }, `${one} runs`)),
          ),
        ),
      },
      h(
        "div",
        { className: "aif-charts" },
        h(Chart, { dagId, runs, title: "Model calls", parts: [{ name: "paid", tone: "paid", of: (run) => run.calls_paid }, { name: "saved", tone: "saved", of: (run) => run.calls_saved }], text: count }),
        h(Chart, { dagId, runs, title: "Cost", parts: [{ name: "paid", tone: "paid", of: (run) => Number(run.cost ?? 0) }, { name: "saved", tone: "saved", of: (run) => Number(run.saved_cost ?? 0) }], text: (value) => money(value) }),
        h(Chart, { dagId, runs, title: "Duration", parts: [{ name: "duration", tone: "plain", of: (run) => run.duration_ms ?? 0 }], text: duration }),
        h(Chart, { dagId, runs, title: "Recoveries", parts: [{ name: "recoveries", tone: "recovered", of: (run) => run.recoveries }], text: count }),
        h(Chart, { dagId, runs, title: "In doubt", parts: [{ name: "in doubt", tone: "doubt", of: (run) => run.in_doubt }], text: count }),
      ),
      h(RunTable, { dagId, runs: [...runs].reverse() }),
    ),
  );
}

/**
 * @param {{dagId: string, runs: Run[], title: string, parts: import("./history_chart.js").Part[], text: (value: number) => string}} props
 */
function Chart({ dagId, runs, title, parts, text }) {
  const go = useNavigate();
  const zone = useTimeZone();
  const { columns, top, total } = chartOf(runs, parts);
  const sums = total.reduce((sum, one) => sum + one, 0);
  const legend = parts.length > 1 ? parts.map((part, at) => h("span", { key: part.name }, h("span", { className: `aif-swatch aif-column-${part.tone}`, "aria-hidden": true }), `${part.name} ${text(total[at])}`)) : [h("span", { key: "all" }, title === "Duration" ? `at most ${text(Math.max(...columns.map((one) => one.sum)))}` : `${text(total[0])} in all`)];
  return h(
    "figure",
    { className: "aif-chart" },
    h("figcaption", {}, h("strong", {}, title), h("span", { className: "aif-chart-legend" }, legend)),
    h(
      "div",
      { className: "aif-chart-body", role: "img", "aria-label": `${title} of the last ${plural(runs.length, "run")}; the table below has the figures` },
      h("span", { className: sums > 0 ? "aif-chart-top" : "aif-track-empty", "aria-hidden": true }, sums > 0 ? text(top) : "none"),
      columns.map(({ run, shares, sum }) =>
        h(
          "div",
          {
            key: run.run_id,
            className: `aif-column${run.outlier ? " aif-column-outlier" : ""}`,
            title: `${run.run_id}\n${moment(run.started_at, zone)}\n${parts.map((part) => `${part.name}: ${text(part.of(run))}`).join("\n")}${run.outlier ? "\nstands out" : ""}`,
            onClick: () => go(runPageAddress(dagId, run.run_id)),
          },
          run.outlier && sum > 0 ? h("span", { className: "aif-outlier-mark" }, "▾") : null,
          shares.map((share, at) => h("span", { key: parts[at].name, className: `aif-column-part aif-column-${parts[at].tone}`, style: { height: `${share * 100}%` } })),
        ),
      ),
    ),
  );
}

/** @param {{dagId: string, runs: Run[]}} props newest first */
function RunTable({ dagId, runs }) {
  return h(
    "div",
    { className: "aif-table-wrap", tabIndex: 0, role: "region", "aria-label": "Table of the last runs" },
    h(
      "table",
      { className: "aif-table" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Run", "State", "Started"].map((head) => h("th", { key: head, scope: "col" }, head)),
          ["Duration", "Calls paid", "Calls saved", "Paid", "Saved", "Recoveries", "In doubt"].map((head) => h("th", { key: head, scope: "col", className: "aif-number" }, head)),
        ),
      ),
      h(
        "tbody",
        {},
        runs.map((run) =>
          h(
            "tr",
            { key: run.run_id },
            h("th", { scope: "row", className: "aif-run-name" }, h(Link, { to: runPageAddress(dagId, run.run_id) }, run.run_id), run.outlier ? h(Badge, { tone: "warning", title: "Far from the other runs of this DAG" }, "stands out") : null),
            h("td", {}, h(StateBadge, { state: run.state })),
            h("td", { className: "aif-nowrap" }, h(Time, { at: run.started_at })),
            h("td", { className: "aif-number" }, duration(run.duration_ms)),
            h("td", { className: "aif-number" }, count(run.calls_paid)),
            h("td", { className: "aif-number" }, count(run.calls_saved)),
            h("td", { className: "aif-number" }, run.calls_paid > 0 ? money(run.cost) : "–"),
            h("td", { className: "aif-number" }, run.calls_saved > 0 ? money(run.saved_cost) : "–"),
            h("td", { className: "aif-number" }, run.recoveries || "–"),
            h("td", { className: "aif-number" }, run.in_doubt ? h(Badge, { tone: "warning" }, count(run.in_doubt)) : "–"),
          ),
        ),
      ),
    ),
  );
}
