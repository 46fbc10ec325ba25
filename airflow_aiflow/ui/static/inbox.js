/** The inbox: everything that waits for a person, answered here one by one or several at once. */

import { post, usePoll } from "./api.js";
import { AnswerForm } from "./answer_form.js";
import { h, useCallback, useEffect, useMemo, useState, useSearchParams } from "./host.js";
import { AnswersList } from "./inbox_answers.js";
import { EntryCard } from "./inbox_entry.js";
import { KINDS, answered, commonDeeds, groups, matching } from "./inbox_words.js";
import { plural } from "./money.js";
import { Button } from "./parts.js";
import { PageHead, useDeed, whenAnswered } from "./pieces.js";
import { Empty } from "./states.js";

/** @typedef {import("./inbox_words.js").Entry} Entry */
/** @typedef {import("./inbox_words.js").Deed} Deed */
/** @typedef {import("./inbox_entry.js").Said} Said */

/** Entries of one look: who has more waiting looks at them by DAG first. */
const LIMIT = 200;

/** @param {{counted: () => void}} props `counted`: the count in the navigation is to be looked at again */
export function InboxPage({ counted }) {
  const [params, setParams] = useSearchParams();
  const view = params.get("view") === "answered" ? "answered" : "waiting";
  return h(
    "div",
    { className: "aif-stack" },
    h(
      PageHead,
      {
        title: "Inbox",
        lead: "What the ledger cannot decide by itself. Nothing of it runs until somebody answers; the first word counts.",
      },
      ["waiting", "answered"].map((each) =>
        h(
          Button,
          { key: each, "aria-pressed": view === each, onClick: () => setParams({ view: each === "waiting" ? null : each }) },
          each === "waiting" ? "Waiting" : "Who answered what",
        ),
      ),
    ),
    view === "answered" ? h(AnswersList, {}) : h(Waiting, { counted }),
  );
}

/** @param {{counted: () => void}} props */
function Waiting({ counted }) {
  const [params, setParams] = useSearchParams();
  const [said, setSaid] = useState(/** @type {Said[]} */ ([]));
  const look = usePoll("/inbox", { limit: LIMIT, dag_id: params.get("dag_id"), run_id: params.get("run_id") });
  const { reload } = look;
  const onSaid = useCallback(
    (/** @type {Said[]} */ more) => {
      setSaid((before) => [...more, ...before].slice(0, 20));
      reload();
      counted();
    },
    [reload, counted],
  );
  return h(
    "div",
    { className: "aif-stack" },
    h(JustSaid, { said }),
    whenAnswered(look, "the inbox", (/** @type {{items: Entry[], next: unknown}} */ data) =>
      h(List, {
        entries: data.items,
        more: Boolean(data.next),
        filter: params.get("q") ?? "",
        focused: Number(params.get("number")) || null,
        onFilter: (q) => setParams({ q: q || null }),
        onSaid,
      }),
    ),
  );
}

function Nothing() {
  return h(
    Empty,
    { title: "Nothing waits for you", tone: "good" },
    "Effects whose outcome nobody knows, approvals, and questions of your pipelines appear here by themselves.",
  );
}

/** @param {{said: Said[]}} props what was answered on this page, newest first; read aloud as it comes */
function JustSaid({ said }) {
  return h(
    "div",
    { className: "aif-said-box", role: "status", "aria-live": "polite" },
    said.length
      ? h(
          "ul",
          { className: "aif-said", "aria-label": "Just answered" },
          said.map((each) =>
            h("li", { key: `${each.number} ${each.text}`, className: each.good ? "aif-said-good" : "aif-said-late" }, each.text),
          ),
        )
      : null,
  );
}

/**
 * @param {{entries: Entry[], more: boolean, filter: string, focused: number | null, onFilter: (text: string) => void,
 *   onSaid: (said: Said[]) => void}} props
 */
function List({ entries, more, filter, focused, onFilter, onSaid }) {
  const [chosen, setChosen] = useState(/** @type {ReadonlySet<number>} */ (new Set()));
  const [held, setHeld] = useState(/** @type {ReadonlyMap<number, Entry>} */ (new Map()));
  const gone = useMemo(() => left(held, entries), [held, entries]);
  const shown = useMemo(() => groups([...matching(entries, filter), ...gone]), [entries, filter, gone]);
  const hold = (/** @type {Entry} */ entry, /** @type {boolean} */ open) => setHeld((before) => changed(before, entry, open));
  useEffect(() => {
    const there = new Set(entries.map((entry) => entry.number));
    setChosen((before) => ([...before].every((number) => there.has(number)) ? before : new Set([...before].filter((number) => there.has(number)))));
  }, [entries]);
  const choose = (/** @type {number[]} */ numbers, /** @type {boolean} */ wanted) =>
    setChosen((before) => {
      const next = new Set(before);
      for (const number of numbers) wanted ? next.add(number) : next.delete(number);
      return next;
    });
  if (entries.length === 0 && gone.length === 0) return h(Nothing, {});
  return h(
    "div",
    { className: "aif-stack" },
    h(
      "div",
      { className: "aif-row aif-spread" },
      h("input", {
        type: "search",
        className: "aif-input aif-filter",
        placeholder: "Filter by effect, key, DAG, run, number",
        "aria-label": "Filter the inbox",
        defaultValue: filter,
        onChange: (/** @type {any} */ event) => onFilter(event.target.value),
      }),
      h("span", { className: "aif-muted" }, `${plural(entries.length, "thing")} ${entries.length === 1 ? "waits" : "wait"}${more ? " here, and more after these" : ""}`),
    ),
    shown.length === 0 ? h(Empty, { title: "Nothing fits the filter" }, "Other things do wait: take words away.") : null,
    shown.map((group) => h(Group, { key: group.id, group, gone, chosen, choose, focused, hold, onSaid })),
    chosen.size > 0 ? h(Several, { entries: entries.filter((entry) => chosen.has(entry.number)), onSaid, onClear: () => setChosen(new Set()) }) : null,
  );
}

/**
 * Give what left the inbox while an answer to it was being written: what was typed must not vanish.
 *
 * @param {ReadonlyMap<number, Entry>} held
 * @param {Entry[]} entries
 */
function left(held, entries) {
  const there = new Set(entries.map((entry) => entry.number));
  return [...held.values()].filter((entry) => !there.has(entry.number));
}

/**
 * @param {ReadonlyMap<number, Entry>} held
 * @param {Entry} entry
 * @param {boolean} open
 */
function changed(held, entry, open) {
  const next = new Map(held);
  if (open) next.set(entry.number, entry);
  else next.delete(entry.number);
  return next;
}

/**
 * @param {{group: ReturnType<typeof groups>[number], gone: Entry[], chosen: ReadonlySet<number>, focused: number | null,
 *   choose: (numbers: number[], wanted: boolean) => void, hold: (entry: Entry, open: boolean) => void,
 *   onSaid: (said: Said[]) => void}} props
 */
function Group({ group, gone, chosen, choose, focused, hold, onSaid }) {
  const answerable = group.entries.filter((entry) => entry.may_answer).map((entry) => entry.number);
  const all = answerable.length > 0 && answerable.every((number) => chosen.has(number));
  return h(
    "section",
    { className: "aif-section", "aria-label": `${KINDS[group.what]}: ${group.name} of ${group.dag_id}` },
    group.entries.length > 1
      ? h(
          "div",
          { className: "aif-row aif-group-head" },
          answerable.length > 1
            ? h(
                "label",
                { className: "aif-row" },
                h("input", {
                  type: "checkbox",
                  className: "aif-check",
                  checked: all,
                  onChange: (/** @type {any} */ event) => choose(answerable, event.target.checked),
                }),
                "All of these",
              )
            : null,
          h("h2", {}, group.name),
          h("span", { className: "aif-muted" }, `${group.entries.length} in ${group.dag_id}`),
        )
      : h("h2", { className: "aif-hidden" }, group.name),
    group.entries.map((entry) =>
      h(EntryCard, {
        key: entry.number,
        entry,
        chosen: chosen.has(entry.number),
        focused: focused === entry.number,
        onChoose: (wanted) => choose([entry.number], wanted),
        gone: gone.includes(entry),
        onOpen: (open) => hold(entry, open),
        onSaid: (one) => {
          hold(entry, false);
          onSaid([one]);
        },
      }),
    ),
  );
}

/** @param {{entries: Entry[], onSaid: (said: Said[]) => void, onClear: () => void}} props */
function Several({ entries, onSaid, onClear }) {
  const [deed, setDeed] = useState(/** @type {Deed | null} */ (null));
  const { busy, error, run, forget } = useDeed();
  const possible = commonDeeds(entries);
  const about = plural(entries.length, "chosen", "chosen");
  const onSay = (/** @type {{reason: string}} */ said) =>
    run(async () => {
      if (deed === null) return;
      const numbers = entries.map((entry) => entry.number);
      const answer = await post("/inbox:answer_many", { numbers, decision: deed.word, reason: said.reason });
      onClear();
      onSaid(outcomes(answer.items, entries, deed));
    });
  return h(
    "section",
    { className: "aif-several", "aria-label": "Answer several at once" },
    h(
      "div",
      { className: "aif-row" },
      h("strong", {}, about),
      possible.length
        ? possible.map((each) =>
            h(
              Button,
              {
                key: each.word,
                danger: each.tone === "stop",
                "aria-pressed": deed?.word === each.word,
                onClick: () => {
                  forget();
                  setDeed(deed?.word === each.word ? null : each);
                },
              },
              each.label,
            ),
          )
        : h("span", { className: "aif-muted" }, "These take no common answer: choose things of one kind."),
      h(Button, { onClick: onClear }, "Choose none"),
    ),
    deed && possible.includes(deed)
      ? h(AnswerForm, { key: deed.word, deed: { ...deed, result: false }, about, busy, error, onSay, onCancel: () => setDeed(null) })
      : null,
  );
}

/**
 * Say of each whether the word counted.
 *
 * @param {{number: number, counts: boolean, why: string}[]} items
 * @param {Entry[]} entries
 * @param {Deed} deed
 * @returns {Said[]}
 */
function outcomes(items, entries, deed) {
  const by = new Map(entries.map((entry) => [entry.number, entry]));
  return items.map((item) => {
    const entry = by.get(item.number);
    const text = item.counts && entry ? answered(deed, entry) : item.why || `#${item.number}: not counted`;
    return { number: item.number, text, good: item.counts };
  });
}
