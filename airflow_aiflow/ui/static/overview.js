/** The overview: what was saved comes first, then how well runs come home, then what is open. */

import { usePoll } from "./api.js";
import { Link, h, useSearchParams } from "./host.js";
import { HOME } from "./inbox_words.js";
import { count, money, percent, plural, priced } from "./money.js";
import { Button, Figure, Figures, Section } from "./parts.js";
import { PageHead, whenAnswered } from "./pieces.js";
import { Empty } from "./states.js";
import { duration } from "./time.js";

/** Days of a look, by the words of the buttons. */
const SPANS = /** @type {const} */ ([
  [1, "Day"],
  [7, "Week"],
  [30, "Month"],
]);

/** Milliseconds between two looks: these figures are sums, they move slowly. */
const EVERY = 10000;

export function OverviewPage() {
  const [params, setParams] = useSearchParams();
  const days = SPANS.some(([each]) => String(each) === params.get("days")) ? Number(params.get("days")) : 7;
  const look = usePoll("/overview", { days }, { every: EVERY });
  return h(
    "div",
    { className: "aif-stack" },
    h(
      PageHead,
      { title: "Overview", lead: `What crash-safe runs saved in the last ${days === 1 ? "24 hours" : `${days} days`}, over the DAGs that you may read.` },
      SPANS.map(([each, word]) =>
        h(
          Button,
          { key: word, "aria-pressed": each === days, onClick: () => setParams({ days: each === 7 ? null : String(each) }) },
          word,
        ),
      ),
    ),
    whenAnswered(look, "the overview", (data) =>
      !data.executions && !data.paid.calls && !data.in_doubt && !data.waiting ? h(Nothing, { days }) : h(Sums, { data }),
    ),
  );
}

/** @param {{days: number}} props */
function Nothing({ days }) {
  return h(
    Empty,
    { title: days === 30 ? "No durable task ran in the last month" : "No durable task ran in this time" },
    "As soon as a task of ", h("code", {}, "@task.durable"), " runs, what it pays and what it saves is added up here.",
  );
}

/** @param {{data: any}} props */
function Sums({ data }) {
  const { saved, paid } = data;
  const calls = (saved.calls ?? 0) + (paid.calls ?? 0);
  const share = calls ? (saved.calls ?? 0) / calls : 0;
  return h(
    "div",
    { className: "aif-stack" },
    h(
      "div",
      { className: "aif-saved" },
      h(
        "div",
        { className: "aif-saved-sum" },
        h("span", { className: "aif-muted" }, "Saved"),
        h("strong", {}, money(saved.cost)),
        h("span", {}, plural(saved.calls ?? 0, "model call"), " not paid for again"),
      ),
      h(
        "div",
        { className: "aif-saved-bar-box" },
        h(
          "div",
          { className: "aif-saved-bar", role: "img", "aria-label": `${percent(share)} of the model calls were saved` },
          h("span", { className: "aif-saved-part", style: { inlineSize: `${share * 100}%` } }),
        ),
        h(
          "div",
          { className: "aif-row aif-spread aif-muted" },
          h("span", {}, `${percent(share)} of ${plural(calls, "call")} came from the ledger`),
          h("span", {}, `Paid ${priced(paid.cost, paid.calls, data.unpriced)} for ${plural(paid.calls ?? 0, "call")}`),
        ),
      ),
    ),
    h(
      Section,
      { title: "How runs come home", id: "aif-home-runs" },
      h(
        Figures,
        { label: "How runs come home" },
        h(Figure, { label: "Runs", value: count(data.runs) }),
        h(Figure, { label: "Success rate", value: percent(data.success_rate), note: "of the attempts that ended by themselves" }),
        h(Figure, { label: "Recoveries", value: mean(data.mean_recoveries), note: "a task, on average" }),
        h(Figure, { label: "Detection", value: seconds(data.detect_seconds_p50), note: "from a stall to its find, median" }),
        h(Figure, { label: "Commit", value: seconds(data.commit_seconds_p50), note: "one write to the ledger, median" }),
      ),
    ),
    h(
      Section,
      { title: "What is open", id: "aif-home-open" },
      h(
        Figures,
        { label: "What is open" },
        h(Figure, {
          label: "In doubt",
          value: count(data.in_doubt),
          tone: data.in_doubt ? "warning" : undefined,
          note: data.in_doubt ? "effects whose outcome nobody knows" : "every effect's outcome is known",
        }),
        h(Figure, {
          label: "Waits for a person",
          value: count(data.waiting),
          tone: data.waiting ? "warning" : undefined,
          note: data.waiting ? h(Link, { to: `${HOME}/inbox` }, "Open the inbox") : "nothing waits for you",
        }),
      ),
    ),
  );
}

/** @param {number | null | undefined} number */
const mean = (number) => (number === null || number === undefined ? "–" : number.toFixed(number && number < 0.1 ? 3 : 2).replace(/\.?0+$/, ""));

/** @param {number | null | undefined} each in seconds */
const seconds = (each) => duration(each === null || each === undefined ? null : each * 1000);
