/** The tab of a task instance: what its execution did, attempt by attempt, and what it cost or saved. */

import { usePoll } from "./api.js";
import { DiffView } from "./diff.js";
import { Link, h, useCallback, useMemo, useSearchParams, useState } from "./host.js";
import { count, money, plural, priced } from "./money.js";
import { Button, Dialog, Figure, Figures, Section, StateBadge, Time } from "./parts.js";
import { ClearButton } from "./preview.js";
import { Empty, Failed, Loading, Stale } from "./states.js";
import { StepList } from "./step_list.js";
import { TimelineChart } from "./timeline_chart.js";
import { modelOf } from "./timeline_model.js";
import { TimelinePanel } from "./timeline_panel.js";
import { generationWords } from "./timeline_words.js";

/** @typedef {{dag_id: string, run_id: string, task_id: string, map_index: number}} Address */

/** Milliseconds between looks at what is over: only a clear can change it. */
const FINISHED_EVERY = 15000;

/** @param {{dagId: string, runId: string, taskId: string, mapIndex: number}} props */
export function TaskPage({ dagId, runId, taskId, mapIndex }) {
  const [params, change] = useSearchParams();
  const generation = params.get("generation");
  const address = useMemo(
    () => ({ dag_id: dagId, run_id: runId, task_id: taskId, map_index: mapIndex }),
    [dagId, runId, taskId, mapIndex],
  );
  const [live, setLive] = useState(true);
  const look = usePoll("/timeline", { ...address, generation }, live ? {} : { every: FINISHED_EVERY });
  const answer = look.data;
  const alive = !answer || isLive(answer.execution);
  if (alive !== live) setLive(alive);
  if (!answer) {
    if (look.error?.status === 404) return h(NothingRecorded, { taskId });
    return look.error ? h(Failed, { error: look.error, retry: look.reload, what: "this task" }) : h(Loading, { label: "Reading the ledger" });
  }
  return h(
    "div",
    { className: "aif-answered" },
    h(Stale, look),
    h(Head, { answer, address, change, onCleared: look.reload }),
    h(HeadLine, { answer }),
    h(Body, { answer, address, params, change }),
  );
}

/** @param {{state: string, live?: boolean}} execution */
const isLive = ({ state, live }) => live === true || state === "running" || state === "paused";

/** @param {{taskId: string}} props */
function NothingRecorded({ taskId }) {
  return h(
    Empty,
    { title: "Nothing recorded of this task" },
    h("p", {}, `${taskId} has no record in the ledger: it has not begun its work, it is not one of AI Flow's tasks, or your role may not read it.`),
    h("p", {}, "Tasks written with ", h("code", {}, "@task.durable"), ", ", h("code", {}, "@task.effect"), ", ", h("code", {}, "once(...)"), " or an operator of AI Flow show here what they did."),
  );
}

/** @param {{answer: any, address: Address, change: (changes: Record<string, string | null>) => void, onCleared: () => void}} props */
function Head({ answer, address, change, onCleared }) {
  const { execution, generations } = answer;
  const [comparing, setComparing] = useState(false);
  const shown = answer.generation ?? generations.at(-1)?.generation;
  const newest = generations.at(-1)?.generation;
  return h(
    "div",
    { className: "aif-row aif-spread" },
    h(
      "div",
      { className: "aif-row" },
      h("h1", { className: "aif-hidden" }, `AI Flow: ${address.task_id}`),
      h(StateBadge, { state: execution.state }),
      execution.started_at ? h("span", { className: "aif-muted" }, "since ", h(Time, { at: execution.started_at })) : null,
      execution.pause_reason ? h("span", {}, execution.pause_reason) : null,
      Object.entries(execution.labels ?? {}).map(([name, value]) => h("span", { key: name, className: "aif-mono aif-muted" }, `${name}=${value}`)),
      execution.questions?.length ? h(Link, { to: "/plugin/aiflow/inbox" }, `${plural(execution.questions.length, "question")} in the inbox`) : null,
    ),
    h(
      "div",
      { className: "aif-row" },
      generations.length > 1
        ? h(
            "label",
            { className: "aif-row" },
            h("span", { className: "aif-hidden" }, "Generation"),
            h(
              "select",
              {
                className: "aif-select",
                value: String(shown),
                onChange: (/** @type {any} */ event) =>
                  change({ generation: event.target.value === String(newest) ? null : event.target.value, show: null }),
              },
              generations.map((/** @type {any} */ one) => h("option", { key: one.generation, value: String(one.generation) }, generationWords(one))),
            ),
          )
        : null,
      generations.length > 1 && shown > generations[0].generation
        ? h(Button, { onClick: () => setComparing(true) }, "What changed")
        : null,
      h(ClearButton, {
        dagId: address.dag_id,
        runId: address.run_id,
        taskId: address.task_id,
        mapIndex: address.map_index >= 0 ? address.map_index : null,
        onCleared,
      }),
    ),
    h(
      Dialog,
      { title: `What changed from generation ${shown - 1} to ${shown}`, open: comparing, onClose: () => setComparing(false), wide: true },
      h("div", { className: "aif-panel-body" }, h(DiffView, { address, generationA: shown - 1, generationB: shown })),
    ),
  );
}

/** @param {{answer: any}} props */
function HeadLine({ answer }) {
  const { head, effects } = answer;
  const { paid, saved_replay: replay, saved_reuse: reuse } = head;
  return h(
    Figures,
    { label: "What this execution paid and saved" },
    h(Figure, {
      label: "Paid",
      value: paid.calls > 0 ? priced(paid.cost, paid.calls, paid.unpriced) : money("0"),
      note: [plural(paid.calls, "model call"), tokens(paid)].filter(Boolean).join(", "),
    }),
    h(Figure, { label: "Saved by replay", value: money(replay.cost ?? "0"), note: `${plural(replay.calls, "call")} not paid again`, title: "Calls that an earlier attempt had recorded and a later one took from the record" }),
    h(Figure, { label: "Saved by reuse", value: money(reuse.cost ?? "0"), note: `${plural(reuse.calls, "call")} taken from other runs` }),
    h(Figure, { label: "Effects done", value: count(head.effects_done), note: effects.length > head.effects_done ? `of ${count(effects.length)} begun` : head.effects_done > 0 ? "each once" : "it has none" }),
    h(Figure, {
      label: "In doubt",
      value: count(head.in_doubt),
      tone: head.in_doubt > 0 ? "warning" : undefined,
      note: head.in_doubt > 0 ? h(Link, { to: "/plugin/aiflow/inbox" }, "answer in the inbox") : "nothing to answer",
    }),
  );
}

/** @param {{tokens_in?: number | null, tokens_out?: number | null}} paid */
function tokens({ tokens_in: given, tokens_out: taken }) {
  return given || taken ? `${count(given ?? 0)} tokens in, ${count(taken ?? 0)} out` : "";
}

/** @param {string} id of a bar, an attempt or a row of the list */
function focusOn(id) {
  const name = CSS.escape(id);
  const found = document.querySelector(`.aif [data-bar="${name}"], .aif [data-choice="${name}"]`);
  if (found instanceof HTMLElement) found.focus({ preventScroll: true });
}

/** @param {{answer: any, address: Address, params: URLSearchParams, change: (changes: Record<string, string | null>) => void}} props */
function Body({ answer, address, params, change }) {
  const model = useMemo(() => modelOf(answer, Date.now()), [answer]);
  const shown = params.get("show");
  const asList = params.get("as") === "list";
  const select = useCallback((/** @type {{id: string}} */ bar) => change({ show: bar.id }), [change]);
  const close = useCallback(() => {
    change({ show: null });
    // Found by its name: the host mounts a page anew after its first load, and what was focused then is gone.
    requestAnimationFrame(() => focusOn(shown ?? ""));
  }, [change, shown]);
  const generation = answer.generation ?? params.get("generation");
  return h(
    Section,
    {
      title: "Timeline",
      id: "aif-timeline-title",
      actions: h(
        "div",
        { className: "aif-row", role: "group", "aria-label": "How to show it" },
        h(Button, { small: true, "aria-pressed": !asList, onClick: () => change({ as: null }) }, "Picture"),
        h(Button, { small: true, "aria-pressed": asList, onClick: () => change({ as: "list" }) }, "List"),
      ),
    },
    answer.truncated ? h("p", { className: "aif-stale" }, "There is more than is shown here: the newest steps are left out.") : null,
    h(
      "div",
      { className: `aif-beside${shown ? " aif-beside-open" : ""}` },
      asList
        ? h(StepList, { model, selected: shown, onSelect: select })
        : h(TimelineChart, { model, selected: shown, onSelect: select }),
      shown ? h(TimelinePanel, { key: shown, shown, model, address, generation, onClose: close, onSelect: select }) : null,
    ),
  );
}
