/** Maps at work and lately done: how far, how fast, until when; and the items that failed, with "retry those". */

import { post, usePoll } from "./api.js";
import { parted, rateWords, share } from "./batch_words.js";
import { clear } from "./clearing.js";
import { h, useId, useState } from "./host.js";
import { count, percent, plural } from "./money.js";
import { Badge, Button, Section } from "./parts.js";
import { Ago, PageHead, Place, Refused, Table, useDeed, whenAnswered } from "./pieces.js";
import { Empty } from "./states.js";
import { duration } from "./time.js";

/** @typedef {import("./batch_words.js").Batch} Batch */

export function BatchesPage() {
  const look = usePoll("/batches");
  return h(
    "div",
    { className: "aif-stack" },
    h(PageHead, { title: "Batches", lead: "Every map of a durable task: one item at a time is recorded, so that a killed batch goes on where it stopped." }),
    whenAnswered(look, "the batches", (/** @type {{items: Batch[]}} */ data) => {
      const { running, ended } = parted(data.items);
      if (data.items.length === 0) {
        return h(Empty, { title: "No batch runs" }, "As soon as a task calls ", h("code", {}, "flow.map"), " or ", h("code", {}, "flow.llm_map"), ", its progress is shown here.");
      }
      return h(
        "div",
        { className: "aif-stack" },
        running.length ? h(Section, { title: "At work", id: "aif-batches-now" }, running.map(card(look.reload))) : null,
        ended.length ? h(Section, { title: "Lately done", id: "aif-batches-done" }, ended.map(card(look.reload))) : null,
      );
    }),
  );
}

/** @param {() => void} reload */
const card = (reload) => (/** @type {Batch} */ batch) =>
  h(BatchCard, { key: JSON.stringify([batch.execution, batch.map]), batch, reload });

/** @param {{batch: Batch, reload: () => void}} props */
function BatchCard({ batch, reload }) {
  const [open, setOpen] = useState(false);
  const label = useId();
  const part = share(batch);
  const total = batch.total === null ? "" : ` of ${count(batch.total)}`;
  return h(
    "article",
    { className: "aif-batch", "aria-labelledby": label },
    h(
      "div",
      { className: "aif-row aif-spread" },
      h("h3", { id: label }, batch.map),
      h("span", { className: "aif-muted" }, h(Place, { execution: batch.execution })),
    ),
    part === null
      ? null
      : h("progress", { className: "aif-progress", max: 1, value: part, "aria-labelledby": label }),
    h(
      "div",
      { className: "aif-row aif-spread" },
      h(
        "span",
        { className: "aif-row" },
        h("span", { className: "aif-number" }, `${count(batch.done)}${total} done${batch.total && !batch.ended_at ? ` (${percent(batch.done / batch.total)})` : ""}`),
        batch.failed ? h(Badge, { tone: "failed" }, `${count(batch.failed)} failed`) : null,
      ),
      batch.ended_at
        ? h("span", { className: "aif-muted" }, h(Ago, { at: batch.ended_at, suffix: " ago" }), `, took ${took(batch)}`)
        : h("span", { className: "aif-muted" }, `${rateWords(batch.rate)}${batch.eta_seconds === null ? "" : `, about ${duration(batch.eta_seconds * 1000)} left`}`),
      batch.failed || open
        ? h(Button, { small: true, "aria-expanded": open, onClick: () => setOpen(!open) }, open ? "Hide what failed" : "Show what failed")
        : null,
    ),
    open ? h(DeadLetters, { batch, reload }) : null,
  );
}

/** @param {Batch} batch */
function took(batch) {
  return batch.started_at && batch.ended_at ? duration(Date.parse(batch.ended_at) - Date.parse(batch.started_at)) : "–";
}

/** @param {{batch: Batch, reload: () => void}} props */
function DeadLetters({ batch, reload }) {
  const { execution } = batch;
  const place = { dag_id: execution.dag_id, run_id: execution.run_id, task_id: execution.task_id, map_index: execution.map_index };
  const look = usePoll("/batches/failed", { ...place, map: batch.map, limit: 200 }, { every: 10000 });
  const [told, setTold] = useState("");
  const { busy, error, run } = useDeed();
  const retry = () =>
    run(async () => {
      const marked = await post("/batches:retry_failed", place);
      const cleared = await clear({ dagId: place.dag_id, runId: place.run_id, taskIds: marked.task_ids, downstream: true }, "resume");
      setTold(`${plural(marked.items, "item")} will run once more: Airflow cleared ${plural(cleared, "task instance")}.`);
      reload();
    });
  return whenAnswered(look, "the failed items", (data) => h(
      "div",
      { className: "aif-stack" },
      data.items.length === 0 ? h("p", { className: "aif-muted" }, "Every item that was tried has a result.") : null,
      h(Table, {
        label: `Items of ${batch.map} that failed`,
        heads: [{ text: "Item", number: true }, "Key", "Error", { text: "Tries", number: true }, "When"],
        rows: data.items.map((/** @type {any} */ item) => ({
          key: String(item.number),
          cells: [
            count(item.number),
            h("span", { className: "aif-mono" }, item.key ?? "–"),
            h("span", { className: "aif-evidence" }, item.error, item.state === "at_work" ? " (at work)" : ""),
            count(item.failures),
            h(Ago, { at: item.at, suffix: " ago" }),
          ],
        })),
      }),
      h(Refused, { error }),
      h(
        "div",
        { className: "aif-row", "aria-live": "polite" },
        h(Button, { solid: true, disabled: busy || data.items.length === 0, onClick: retry }, busy ? "Asking …" : `Retry ${data.items.length === 1 ? "it" : `those ${data.truncated ? "all" : count(data.items.length)}`}`),
        told ? h("span", {}, told) : h("span", { className: "aif-muted" }, "Their tasks are cleared and resume: nothing that succeeded runs again."),
      ),
    ),
  );
}
