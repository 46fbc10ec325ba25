/** What the pages behind the navigation show alike: an age, a task's place, a table, a deed and what came of it. */

import { ApiError } from "./api.js";
import { Fragment, Link, h, useCallback, useRef, useState, useTimeZone } from "./host.js";
import { taskName } from "./inbox_words.js";
import { useNow } from "./parts.js";
import { dagAddress, runAddress, taskAddress } from "./places.js";
import { Answered } from "./states.js";
import { moment, since, utc } from "./time.js";

/** @typedef {import("./host.js").Node} Node */
/** @typedef {import("./inbox_words.js").Execution} Execution */

/** @param {{at: string | null | undefined, suffix?: string}} props `suffix`: what stands behind the age */
export function Ago({ at, suffix = "" }) {
  const zone = useTimeZone();
  const now = useNow();
  if (!at) return h("span", { className: "aif-muted" }, "–");
  return h("time", { className: "aif-ago", dateTime: at, title: `${moment(at, zone)} (${utc(at)})` }, since(at, now), suffix);
}

/**
 * Say where something happened: DAG, run and task, each a link to its page.
 *
 * @param {{execution: Execution}} props of a run as a whole the task id is empty
 */
export function Place({ execution }) {
  const { dag_id: dagId, run_id: runId } = execution;
  const then = h("span", { "aria-hidden": true, className: "aif-muted" }, " › ");
  return h(
    "span",
    { className: "aif-place" },
    h(Link, { to: dagAddress(dagId) }, dagId),
    then,
    h(Link, { to: runAddress(dagId, runId), className: "aif-mono" }, runId),
    execution.task_id ? h(Fragment, {}, then, h(Link, { to: taskAddress(execution) }, taskName(execution))) : null,
  );
}

/**
 * Show rows under headings; a narrow page scrolls the table, not itself.
 *
 * @param {{label: string, heads: (string | {text: string, number: true})[], rows: {key: string, cells: Node[]}[]}} props
 */
export function Table({ label, heads, rows }) {
  const columns = heads.map((head) => (typeof head === "string" ? { text: head, number: false } : head));
  const style = (/** @type {number} */ place) => (columns[place]?.number ? "aif-number" : undefined);
  return h(
    "div",
    { className: "aif-table-wrap", tabIndex: 0, role: "region", "aria-label": label },
    h(
      "table",
      { className: "aif-table" },
      h(
        "thead",
        {},
        h("tr", {}, ...columns.map((head, place) => h("th", { key: place, scope: "col", className: style(place) }, head.text))),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h("tr", { key: row.key }, ...row.cells.map((cell, place) => h("td", { key: place, className: style(place) }, cell))),
        ),
      ),
    ),
  );
}

/**
 * Do something once at a time and keep what went wrong.
 *
 * @returns {{busy: boolean, error: ApiError | null, run: (deed: () => Promise<void>) => Promise<void>, forget: () => void}}
 */
export function useDeed() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const working = useRef(false);
  const run = useCallback(async (/** @type {() => Promise<void>} */ deed) => {
    if (working.current) return;
    working.current = true;
    setBusy(true);
    setError(null);
    try {
      await deed();
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError(-1, String(failed)));
    } finally {
      working.current = false;
      setBusy(false);
    }
  }, []);
  const forget = useCallback(() => setError(null), []);
  return { busy, error, run, forget };
}

/** @param {{error: ApiError | null}} props */
export function Refused({ error }) {
  if (error === null) return null;
  return h("p", { className: "aif-refused", role: "alert" }, refusal(error));
}

/** @param {ApiError} error */
export function refusal(error) {
  if (error.status === 401) return "You are signed out. Nothing was done: sign in again, then repeat it.";
  if (error.status === 403) return `Your role does not allow this: ${error.detail}`;
  if (error.status === 0) return `${error.detail} It is not known whether this was taken: look again before you repeat it.`;
  return error.detail;
}

/** @param {{title: string, lead?: Node, children?: Node}} props the head of a page */
export function PageHead({ title, lead, children }) {
  return h(
    "div",
    { className: "aif-page-head" },
    h("div", {}, h("h1", {}, title), lead ? h("p", { className: "aif-muted" }, lead) : null),
    children ? h("div", { className: "aif-row" }, children) : null,
  );
}

/** @param {{look: {data?: {next?: unknown}}, onMore: () => void, busy?: boolean}} props */
export function More({ look, onMore, busy = false }) {
  if (!look.data?.next) return null;
  return h("button", { type: "button", className: "aif-button", onClick: onMore, disabled: busy }, "Show more");
}

/**
 * Show an answer, or what is known instead of it.
 *
 * @template T
 * @param {import("./api.js").Look<T>} look
 * @param {string} what it is, in the words of "Either ... does not exist, or you may not read it"
 * @param {(data: T) => Node} show
 */
export function whenAnswered(look, what, show) {
  return h(/** @type {(props: any) => Node} */ (Answered), { look, what, children: show });
}
