/** What recovery found and did, newest first, beside what Airflow alone would have taken. */

import { get, usePoll } from "./api.js";
import { h, useState } from "./host.js";
import { Badge } from "./parts.js";
import { Ago, More, PageHead, Place, Refused, Table, useDeed, whenAnswered } from "./pieces.js";
import { deedWords, kindWords, standstill } from "./recovery_words.js";
import { Empty } from "./states.js";
import { duration } from "./time.js";

const LIMIT = 50;

export function RecoveriesPage() {
  const look = usePoll("/recoveries", { limit: LIMIT });
  const [older, setOlder] = useState(/** @type {{items: any[], next: string | null} | null} */ (null));
  const { busy, error, run } = useDeed();
  const more = (/** @type {string} */ after) =>
    run(async () => {
      const page = await get("/recoveries", { limit: LIMIT, after });
      setOlder((before) => ({ items: [...(before?.items ?? []), ...page.items], next: page.next }));
    });
  return h(
    "div",
    { className: "aif-stack" },
    h(PageHead, {
      title: "Recoveries",
      lead: "Runs that stood still: what was found, what was done, and when the task went on.",
    }),
    whenAnswered(look, "the recoveries", (data) => {
      const items = together(data.items, older?.items ?? []);
      const next = older ? older.next : data.next;
      return items.length === 0
        ? h(Empty, { title: "No run stood still", tone: "good" }, "What the recovery DAG finds appears here. Without it, or ", h("code", {}, "aiflow doctor"), " says so, nobody looks.")
        : h(
            "div",
            { className: "aif-stack" },
            h(Table, {
              label: "Recoveries",
              heads: ["Found", "What", "Where", "Done"],
              rows: items.map(row),
            }),
            h(Refused, { error }),
            h("div", {}, h(More, { look: { data: { next } }, busy, onMore: () => more(next) })),
          );
    }),
  );
}

/**
 * Put older pages behind the newest, which grows at its head.
 *
 * @param {any[]} newest
 * @param {any[]} older
 */
function together(newest, older) {
  const there = new Set(newest.map(keyOf));
  return [...newest, ...older.filter((item) => !there.has(keyOf(item)))];
}

/** @param {any} item */
const keyOf = (item) => String(item.number ?? JSON.stringify([item.found_at, item.execution, item.kind]));

/** @param {any} item */
function row(item) {
  const kind = kindWords(item.kind);
  const deed = deedWords(item.deed);
  const still = standstill(item);
  const alone = item.airflow_alone_seconds;
  return {
    key: keyOf(item),
    cells: [
      h(Ago, { at: item.found_at, suffix: " ago" }),
      h("div", { className: "aif-evidence" }, h("strong", { title: kind.sign }, kind.label), h("div", { className: "aif-muted" }, item.evidence)),
      h(Place, { execution: item.execution }),
      h("div", {}, h(Badge, { tone: deed.tone, title: deed.hint }, deed.label), h("div", { className: "aif-still" }, stood(item, still)), h("div", { className: "aif-muted aif-evidence", title: kind.alone }, `Airflow alone: ${alone === null ? kind.alone || "not known" : `finds it after ${duration(alone * 1000)}`}`)),
    ],
  };
}

/**
 * @param {any} item
 * @param {number | null} still in ms
 */
function stood(item, still) {
  if (still !== null) return `stood still for ${duration(still)}`;
  return item.deed === "requeue" ? "has not gone on yet" : `seen after ${duration(item.detect_seconds === null ? null : item.detect_seconds * 1000)}`;
}
