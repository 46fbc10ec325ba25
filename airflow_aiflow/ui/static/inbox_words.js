// @ts-check
// What the inbox says of each thing that waits, and which words a person may give on it. No browser is touched here.

/**
 * @typedef {{dag_id: string, run_id: string, task_id: string, map_index: number}} Execution
 * @typedef {{number?: number, kind?: string, name?: string, subject: string, body: string, options: string[],
 *   assigned_users: string[], time_left: number | null}} Question
 * @typedef {{number: number, what: "doubt" | "approval" | "conflict" | "ask", execution: Execution, since: string,
 *   effect: {name: string, key: string | null, state: string, scope: string} | null, request: unknown,
 *   attempt: number | null, owner: "verified dead" | "presumed gone" | "alive" | null, link: string | null,
 *   host?: string | null, idempotency_key?: string | null, question: Question | null, may_answer: boolean}} Entry
 * @typedef {{word: string, label: string, hint: string, tone: "yes" | "again" | "stop" | "plain", result: boolean}} Deed
 */

/** How each kind of waiting thing is called. */
export const KINDS = { doubt: "In doubt", approval: "Approval", conflict: "Conflict", ask: "Question" };

/** Where the pages behind the navigation are, within Airflow's own. */
export const HOME = "/plugin/aiflow";

const DOUBT_DEEDS = /** @type {Deed[]} */ ([
  {
    word: "happened",
    label: "It happened",
    hint: "The effect counts as done and is never sent again.",
    tone: "yes",
    result: true,
  },
  {
    word: "did_not_happen",
    label: "It did not happen: run it",
    hint: "The task calls it again, with the request recorded then.",
    tone: "again",
    result: false,
  },
]);

const FAIL_DEED = /** @type {Deed} */ ({
  word: "fail",
  label: "Fail the task",
  hint: "The waiting task fails; the doubt stays open.",
  tone: "stop",
  result: false,
});

/** Options that stop something, in the ledger's own words. */
const STOPPING = new Set(["Reject", "Fail the task"]);

/**
 * Ask the question of an entry in one line.
 * @param {Entry} entry
 * @returns {string}
 */
export function title(entry) {
  if (entry.what === "doubt" && entry.effect) return `Did “${entry.effect.name}” happen?`;
  return entry.question?.subject || entry.effect?.name || `#${entry.number}`;
}

/**
 * Name a task instance as people write it.
 * @param {Execution} execution
 * @returns {string}
 */
export function taskName(execution) {
  return execution.map_index < 0 ? execution.task_id : `${execution.task_id}[${execution.map_index}]`;
}

/**
 * Say whether a task stands still until somebody answers.
 * @param {Entry} entry
 * @returns {boolean}
 */
export function taskWaits(entry) {
  const left = entry.question?.time_left;
  return entry.question !== null && (left === null || left === undefined || left > 0);
}

/**
 * List what may be said of an entry.
 * @param {Entry} entry
 * @returns {Deed[]}
 */
export function deeds(entry) {
  if (entry.what === "doubt") return taskWaits(entry) ? [...DOUBT_DEEDS, FAIL_DEED] : DOUBT_DEEDS;
  return (entry.question?.options ?? []).map((option, place) => ({
    word: option,
    label: option,
    hint: "",
    tone: STOPPING.has(option) ? "stop" : place === 0 ? "yes" : "plain",
    result: false,
  }));
}

/**
 * List what may be said of several entries at once: only what each of them takes.
 * @param {Entry[]} entries
 * @returns {Deed[]}
 */
export function commonDeeds(entries) {
  const [first, ...rest] = entries;
  if (first === undefined) return [];
  const lists = rest.map((entry) => new Set(deeds(entry).map((deed) => deed.word)));
  return deeds(first).filter((deed) => lists.every((words) => words.has(deed.word)));
}

/**
 * Say how sure it is that nobody is at work on the call any more.
 * @param {Entry["owner"]} owner
 * @returns {{text: string, hint: string, tone: "sure" | "unsure" | "busy"} | null}
 */
export function ownerWords(owner) {
  switch (owner) {
    case "verified dead":
      return { text: "verified dead", hint: "Its process was looked for and is not there.", tone: "sure" };
    case "presumed gone":
      return {
        text: "presumed gone",
        hint: "Its lease lapsed and the call's time is over; nobody could look for its process.",
        tone: "unsure",
      };
    case "alive":
      return { text: "may be at work", hint: "Nobody decides before its time is over.", tone: "busy" };
    default:
      return null;
  }
}

/**
 * Gather entries that are answered alike: of one DAG, one kind and one effect.
 * @param {Entry[]} entries
 * @returns {{id: string, dag_id: string, what: Entry["what"], name: string, entries: Entry[]}[]} the oldest thing first
 */
export function groups(entries) {
  /** @type {Map<string, {id: string, dag_id: string, what: Entry["what"], name: string, entries: Entry[]}>} */
  const found = new Map();
  for (const entry of [...entries].sort((left, right) => left.since.localeCompare(right.since))) {
    const name = entry.effect?.name ?? entry.question?.name ?? entry.execution.task_id;
    const id = JSON.stringify([entry.execution.dag_id, entry.what, name]);
    const group = found.get(id) ?? { id, dag_id: entry.execution.dag_id, what: entry.what, name, entries: [] };
    group.entries.push(entry);
    found.set(id, group);
  }
  return [...found.values()];
}

/**
 * Keep the entries that hold every word that was typed.
 * @param {Entry[]} entries
 * @param {string} text
 * @returns {Entry[]}
 */
export function matching(entries, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return entries.filter((entry) => {
    const { execution, effect, question } = entry;
    const there = [
      `#${entry.number}`, KINDS[entry.what], execution.dag_id, execution.run_id, taskName(execution),
      effect?.name, effect?.key, question?.subject,
    ].join("\n").toLowerCase();
    return words.every((word) => there.includes(word));
  });
}

/**
 * Lay a request out for reading: the function, and one line for each argument.
 * @param {unknown} request
 * @returns {{call: string | null, rows: [string, string][]} | null} `call` is null where only a text is known
 */
export function readableRequest(request) {
  if (request === null || request === undefined) return null;
  if (typeof request !== "object") return { call: null, rows: [["", String(request)]] };
  const value = /** @type {Record<string, unknown>} */ (request);
  const named = typeof value.arguments === "object" && value.arguments !== null && typeof value.function === "string";
  const rows = Object.entries(/** @type {object} */ (named ? value.arguments : value));
  return {
    call: named ? String(value.function).split(".<locals>.").slice(-1)[0] : null,
    rows: rows.map(([name, each]) => [name, written(each)]),
  };
}

/**
 * Write a value of JSON for reading.
 * @param {unknown} value
 * @returns {string}
 */
export function written(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "–";
}

/**
 * Put a count in front of a page's title, so that a tab in the background tells it.
 * @param {string} old title
 * @param {number | null} waiting
 * @returns {string}
 */
export function pageTitle(old, waiting) {
  const bare = old.replace(/^\(\d+\+?\) /, "");
  return waiting ? `(${waiting}) ${bare}` : bare;
}

/**
 * Say what an answer came to, for the line that remains after it.
 * @param {Deed} deed
 * @param {Entry} entry
 * @param {string} [next] what happens now, in the ledger's words
 * @returns {string}
 */
export function answered(deed, entry, next = "") {
  const said =
    {
      happened: "you said that it happened. It is not sent again.",
      did_not_happen: "you said that it did not happen. It is run when the task goes on.",
      fail: "the waiting task fails. The doubt stays open.",
    }[entry.what === "doubt" ? deed.word : ""] ?? `you answered “${deed.label}”.`;
  const unheard = taskWaits(entry) ? "" : " No task waits for it: clear the task to go on.";
  return `#${entry.number}: ${said}${next ? ` Now: ${next}.` : unheard}`;
}
