/** One thing that waits: what it is about, what is known of it, and what may be said. */

import { ApiError, post } from "./api.js";
import { AnswerForm } from "./answer_form.js";
import { h, useEffect, useId, useRef, useState } from "./host.js";
import { KINDS, answered, deeds, ownerWords, readableRequest, taskWaits, title } from "./inbox_words.js";
import { Badge, Button, Pairs, useNow } from "./parts.js";
import { Ago, Place, useDeed } from "./pieces.js";
import { duration } from "./time.js";

/** @typedef {import("./inbox_words.js").Entry} Entry */
/** @typedef {import("./inbox_words.js").Deed} Deed */
/** @typedef {{number: number, text: string, good: boolean}} Said */

const SURE = /** @type {const} */ ({ sure: "success", unsure: "warning", busy: "running" });

/**
 * Carry a person's word to the ledger.
 *
 * @param {Entry} entry
 * @param {Deed} deed
 * @param {{reason: string, result?: unknown}} said
 */
export function say(entry, deed, said) {
  if (entry.what !== "doubt") {
    return post(`/inbox/${entry.number}:answer`, { option: deed.word, reason: said.reason });
  }
  const result = "result" in said ? { result: said.result } : {};
  return post(`/effects/${entry.number}:resolve`, { decision: deed.word, reason: said.reason, ...result });
}

/**
 * @param {{entry: Entry, chosen: boolean, onChoose: (chosen: boolean) => void, onSaid: (said: Said) => void,
 *   onOpen: (open: boolean) => void, focused?: boolean, gone?: boolean}} props `focused`: the address names this entry;
 *   `gone`: it left the inbox while somebody was writing an answer here
 */
export function EntryCard({ entry, chosen, onChoose, onSaid, onOpen, focused = false, gone = false }) {
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    if (focused) card.current?.scrollIntoView({ block: "center" });
  }, [focused]);
  return h(
    "article",
    { ref: card, className: `aif-entry${focused ? " aif-entry-focused" : ""}`, "aria-labelledby": id },
    h(
      "div",
      { className: "aif-entry-head" },
      entry.may_answer && !gone
        ? h("input", {
            type: "checkbox",
            className: "aif-check",
            checked: chosen,
            "aria-label": `Choose #${entry.number}`,
            onChange: (/** @type {any} */ event) => onChoose(event.target.checked),
          })
        : null,
      h("h3", { id }, title(entry), entry.effect?.key && entry.what !== "ask" ? h("span", { className: "aif-mono aif-key" }, entry.effect.key) : null),
      h("span", { className: "aif-mono aif-muted" }, `#${entry.number}`),
      h(Badge, { tone: entry.what === "doubt" ? "warning" : "waiting" }, KINDS[entry.what]),
      h("span", { className: "aif-entry-age aif-muted" }, h(Ago, { at: entry.since, suffix: " ago" })),
    ),
    h(Known, { entry }),
    h(Body, { entry }),
    gone
      ? h("p", { className: "aif-refused", role: "status" }, "This waits no more: somebody answered it meanwhile, or its task asks it no more. Say it all the same to be told who was first.")
      : null,
    h(Words, { entry, onSaid, onOpen }),
  );
}

/** @param {{entry: Entry}} props */
function Known({ entry }) {
  const owner = entry.what === "doubt" ? ownerWords(entry.owner) : null;
  const by = entry.attempt === null || entry.attempt === undefined ? null : `attempt ${entry.attempt}${entry.host ? ` on ${entry.host}` : ""}`;
  return h(Pairs, {
    pairs: [
      ["Task", h(Place, { execution: entry.execution })],
      owner
        ? [
            "Begun by",
            h(
              "span",
              { className: "aif-row" },
              by,
              h(Badge, { tone: SURE[owner.tone], title: owner.hint }, owner.text),
              h("span", { className: "aif-muted" }, owner.hint),
            ),
          ]
        : by
          ? ["Asked by", by]
          : null,
      ["Waits", h(Waits, { entry })],
      entry.question?.assigned_users?.length ? ["For", entry.question.assigned_users.join(", ")] : null,
      entry.idempotency_key ? ["Idempotency key", h("span", { className: "aif-mono" }, entry.idempotency_key)] : null,
      entry.link
        ? ["Target", h("a", { href: entry.link, target: "_blank", rel: "noreferrer noopener" }, "Look at the target ↗")]
        : null,
    ],
  });
}

/** @param {{entry: Entry}} props */
function Waits({ entry }) {
  const asked = useRef(Date.now());
  const now = useNow();
  if (!taskWaits(entry)) return "No task waits for it: after your word, clear the task.";
  const left = entry.question?.time_left;
  if (left === null || left === undefined) return "A task waits, for as long as it takes.";
  return `A task waits, for ${duration(Math.max(0, left * 1000 - (now - asked.current)))} more.`;
}

/** @param {{entry: Entry}} props */
function Body({ entry }) {
  const request = readableRequest(entry.request);
  const body = entry.what === "doubt" ? "" : (entry.question?.body ?? "");
  if (request === null && !body) return null;
  return h(
    "div",
    { className: "aif-entry-body" },
    body ? h("p", { className: "aif-prose" }, body) : null,
    request
      ? h(
          "div",
          { className: "aif-request", role: "group", "aria-label": "Request" },
          h("div", { className: "aif-muted" }, request.call ? ["Request: ", h("code", { key: "call" }, `${request.call}()`)] : "Request"),
          request.rows.map(([name, value]) =>
            h(
              "div",
              { key: name, className: "aif-request-row" },
              name ? h("span", { className: "aif-mono aif-muted" }, name) : null,
              h("pre", { className: "aif-request-value" }, value),
            ),
          ),
        )
      : null,
  );
}

/** @param {{entry: Entry, onSaid: (said: Said) => void, onOpen: (open: boolean) => void}} props */
function Words({ entry, onSaid, onOpen }) {
  const [deed, choose] = useState(/** @type {Deed | null} */ (null));
  const setDeed = (/** @type {Deed | null} */ chosen) => {
    choose(chosen);
    onOpen(chosen !== null);
  };
  const { busy, error, run, forget } = useDeed();
  const opener = useRef(/** @type {HTMLElement | null} */ (null));
  if (!entry.may_answer) {
    return h("p", { className: "aif-muted aif-entry-words" }, "You may read this, not answer it: that takes the right to change the DAG's runs.");
  }
  const close = () => {
    setDeed(null);
    forget();
    opener.current?.focus();
  };
  const onSay = (/** @type {{reason: string, result?: unknown}} */ said) =>
    run(async () => {
      if (deed === null) return;
      try {
        const word = await say(entry, deed, said);
        onSaid({ number: entry.number, text: answered(deed, entry, word.next), good: true });
      } catch (failed) {
        // Somebody was first: who, when and with what stays on the page, though the entry goes.
        if (!(failed instanceof ApiError) || failed.status !== 409) throw failed;
        onSaid({ number: entry.number, text: `Your word does not count: ${failed.detail}`, good: false });
      }
    });
  return h(
    "div",
    { className: "aif-entry-words" },
    h(
      "div",
      { className: "aif-row", role: "group", "aria-label": `Answer #${entry.number}` },
      deeds(entry).map((each) =>
        h(
          Button,
          {
            key: each.word,
            danger: each.tone === "stop",
            "aria-expanded": deed?.word === each.word,
            "aria-pressed": deed?.word === each.word,
            onClick: (/** @type {any} */ event) => {
              opener.current = event.currentTarget;
              forget();
              setDeed(deed?.word === each.word ? null : each);
            },
          },
          each.label,
        ),
      ),
    ),
    deed ? h(AnswerForm, { key: deed.word, deed, about: `#${entry.number}`, busy, error, onSay, onCancel: close }) : null,
  );
}
