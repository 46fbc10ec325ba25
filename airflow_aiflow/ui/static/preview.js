/** "What would happen if I clear this?", asked before it is done; from the task's and the run's page. */

import { post, useLook } from "./api.js";
import { callsOf, instances, keptOf, marker, summary } from "./clear_words.js";
import { bodyOf, clear } from "./clearing.js";
import { Fragment, Link, h, useState } from "./host.js";
import { HOME } from "./inbox_words.js";
import { plural } from "./money.js";
import { Badge, Button, Dialog } from "./parts.js";
import { Refused, Table, useDeed, whenAnswered } from "./pieces.js";

/** @typedef {import("./clear_words.js").ClearPreview} ClearPreview */
/** @typedef {import("./clearing.js").Chosen} Chosen */
/** @typedef {"auto" | "resume" | "fresh"} Way */

/** Each way with its words, and those of the button that does it. */
const WAYS = /** @type {const} */ ([
  ["resume", "Resume", "Recorded steps are replayed, nothing recorded is paid again.", "Clear (resume)"],
  ["fresh", "Run fresh", "Each task starts a new generation: model calls are paid again, effects stay done.", "Run fresh"],
  ["auto", "As the task decides", "What Airflow's own Clear button does: a success that somebody saw starts anew, the rest goes on.", "Clear"],
]);

/**
 * A button that opens the preview; for a task, or for a whole run without `taskId`.
 *
 * @param {{dagId: string, runId: string, taskId?: string, mapIndex?: number | null, small?: boolean, label?: string,
 *   onCleared?: () => void}} props
 */
export function ClearButton({ dagId, runId, taskId, mapIndex, small = false, label = "Clear …", onCleared }) {
  const [open, setOpen] = useState(false);
  const taskIds = taskId ? [marker(taskId, mapIndex)] : null;
  return h(
    Fragment,
    {},
    h(Button, { small, "aria-haspopup": "dialog", onClick: () => setOpen(true) }, label),
    open ? h(ClearDialog, { dagId, runId, taskIds, onClose: () => setOpen(false), onCleared }) : null,
  );
}

/**
 * @param {{dagId: string, runId: string, taskIds?: import("./clearing.js").Marker[] | null, open?: boolean,
 *   onClose: () => void, onCleared?: () => void}} props
 */
export function ClearDialog({ dagId, runId, taskIds = null, open = true, onClose, onCleared }) {
  const [way, setWay] = useState(/** @type {Way} */ ("resume"));
  const [downstream, setDownstream] = useState(true);
  const [done, setDone] = useState(/** @type {number | null} */ (null));
  const { busy, error, run } = useDeed();
  const chosen = { dagId, runId, taskIds, downstream };
  const asked = { ...bodyOf(chosen), ...(way === "auto" ? {} : { on_clear: way }) };
  const look = useLook(open && done === null ? () => post("/clear:preview", asked) : null, JSON.stringify(asked), null);
  const doIt = () =>
    run(async () => {
      setDone(await clear(chosen, way === "auto" ? null : way));
      onCleared?.();
    });
  const what = taskIds ? taskIds.map((each) => (typeof each === "string" ? each : `${each[0]}[${each[1]}]`)).join(", ") : "the whole run";
  return h(
    Dialog,
    { title: `Clear ${what}?`, open, onClose, wide: true },
    h(
      "div",
      { className: "aif-dialog-content" },
      done === null
        ? h(
            Fragment,
            {},
            h(Ways, { way, onWay: setWay }),
            taskIds
              ? h(
                  "label",
                  { className: "aif-row" },
                  h("input", {
                    type: "checkbox",
                    className: "aif-check",
                    checked: downstream,
                    onChange: (/** @type {any} */ event) => setDownstream(event.target.checked),
                  }),
                  "With the tasks below it",
                )
              : null,
            whenAnswered(look, "this run", (data) =>
              h(Shown, { preview: data, way }),
            ),
            h(Refused, { error }),
            h(Deeds, { ready: look.data !== undefined && look.data.tasks.length > 0, busy, way, onDo: doIt, onClose }),
          )
        : h(Done, { number: done, onClose }),
    ),
  );
}

/** @param {{way: Way, onWay: (way: Way) => void}} props */
function Ways({ way, onWay }) {
  return h(
    "fieldset",
    { className: "aif-ways" },
    h("legend", { className: "aif-hidden" }, "How to clear"),
    WAYS.map(([each, label, hint]) =>
      h(
        "label",
        { key: each, className: `aif-way${each === way ? " aif-way-chosen" : ""}` },
        h("input", { type: "radio", name: "aif-way", value: each, checked: each === way, onChange: () => onWay(each) }),
        h("span", {}, h("strong", {}, label), h("span", { className: "aif-muted" }, hint)),
      ),
    ),
  );
}

/** @param {{preview: ClearPreview, way: Way}} props */
function Shown({ preview, way }) {
  return h(
    "div",
    { className: "aif-stack" },
    h("p", { className: "aif-summary", role: "status" }, summary(preview)),
    preview.tasks.length
      ? h(Table, {
          label: "What each task does",
          heads: ["Task", "What happens", { text: "Steps recorded", number: true }, "Model calls again", "Effects kept"],
          rows: preview.tasks.map((line) => ({
            key: `${line.task_id} ${line.verdict}`,
            cells: [
              h("span", { className: "aif-mono aif-nowrap" }, instances(line)),
              line.durable
                ? h(Fragment, {}, h(Badge, { tone: line.new_generation ? "warning" : "info" }, line.new_generation ? "starts anew" : "resumes"), " ", h("span", { className: "aif-muted" }, line.verdict))
                : h("span", { className: "aif-muted" }, line.verdict),
              line.durable ? String(line.steps_recorded) : "",
              callsOf(line),
              keptOf(line),
            ],
          })),
        })
      : null,
    h(Notes, { preview, way }),
  );
}

/** @param {{preview: ClearPreview, way: Way}} props */
function Notes({ preview, way }) {
  const notes = [];
  if (preview.in_doubt.length) {
    const names = preview.in_doubt.map((each) => `#${each.number} ${each.effect}`).join(", ");
    notes.push(h("li", { key: "doubt" }, h("strong", {}, "In doubt: "), names, ". They are asked about again before anything is sent. ", h(Link, { to: `${HOME}/inbox` }, "Open the inbox")));
  }
  if (preview.waiting.length) {
    const names = preview.waiting.map((each) => `#${each.number} ${each.subject}`).join(", ");
    notes.push(h("li", { key: "waits" }, h("strong", {}, "A task waits for an answer: "), names, ". Answer it first; cleared, the task asks the same again."));
  }
  for (const asset of preview.assets) {
    const triggers = asset.triggers_dags ? `, which triggers ${plural(asset.triggers_dags, "DAG")}` : "";
    notes.push(h("li", { key: asset.uri }, h("span", { className: "aif-mono" }, asset.uri), ` will be emitted again${triggers}.`));
  }
  if (way === "auto" && preview.model_calls_again) notes.push(h("li", { key: "instead" }, "With Resume no recorded call is paid again."));
  return notes.length ? h("ul", { className: "aif-notes" }, notes) : null;
}

/** @param {{ready: boolean, busy: boolean, way: Way, onDo: () => void, onClose: () => void}} props */
function Deeds({ ready, busy, way, onDo, onClose }) {
  const label = WAYS.find(([each]) => each === way)?.[3];
  return h(
    "div",
    { className: "aif-row" },
    h(Button, { solid: way !== "fresh", danger: way === "fresh", disabled: !ready || busy, onClick: onDo }, busy ? "Clearing …" : label),
    h(Button, { onClick: onClose }, "Cancel"),
  );
}

/** @param {{number: number, onClose: () => void}} props */
function Done({ number, onClose }) {
  return h(
    "div",
    { className: "aif-stack", role: "status" },
    h("p", {}, number ? `Airflow cleared ${plural(number, "task instance")}. They start as soon as the scheduler takes them.` : "Airflow found nothing to clear."),
    h("div", {}, h(Button, { solid: true, onClick: onClose }, "Close")),
  );
}
