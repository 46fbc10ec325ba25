/** What a page shows where it has nothing to show: waiting, nothing there, no right, signed out, broken, cut off. */

import { Component, h, signIn, useEffect, useState } from "./host.js";

/** @typedef {import("./host.js").Node} Node */
/** @typedef {import("./api.js").ApiError} ApiError */

/** Milliseconds before a wait is shown: a quick answer should not flash a notice. */
const PATIENCE = 400;

/** @param {{label?: string}} props */
export function Loading({ label = "Loading" }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), PATIENCE);
    return () => clearTimeout(timer);
  }, []);
  return h(
    "div",
    { className: "aif-state", role: "status", "aria-busy": true },
    shown ? [h("span", { key: "dot", className: "aif-spinner", "aria-hidden": true }), `${label} …`] : null,
  );
}

/** @param {{title: string, children?: Node, tone?: "plain" | "good"}} props */
export function Empty({ title, children, tone = "plain" }) {
  return h(
    "div",
    { className: `aif-state aif-state-${tone}`, role: "status" },
    h("p", { className: "aif-state-title" }, title),
    children ? h("div", { className: "aif-state-text" }, children) : null,
  );
}

/** @param {{what?: string}} props */
export function NotAllowed({ what = "this" }) {
  return h(
    Empty,
    { title: "Nothing here for you" },
    `Either ${what} does not exist, or your role may not read it. Ask whoever administers this Airflow for the right to read the DAG's runs.`,
  );
}

export function SignedOut() {
  return h(
    "div",
    { className: "aif-state", role: "alert" },
    h("p", { className: "aif-state-title" }, "You are signed out"),
    h("p", { className: "aif-state-text" }, "Your session ended. Sign in and you come back to this page."),
    h("button", { type: "button", className: "aif-button aif-button-solid", onClick: signIn }, "Sign in"),
  );
}

/**
 * Say what went wrong, each kind in its own way.
 *
 * @param {{error: Error & {status?: number, detail?: string}, retry?: () => void, what?: string}} props
 */
export function Failed({ error, retry, what }) {
  if (error.status === 401) return h(SignedOut);
  if (error.status === 403 || error.status === 404) return h(NotAllowed, { what });
  return h(
    "div",
    { className: "aif-state aif-state-bad", role: "alert" },
    h("p", { className: "aif-state-title" }, error.status === 0 ? "No connection" : "This could not be shown"),
    h("p", { className: "aif-state-text" }, error.detail ?? String(error)),
    retry ? h("button", { type: "button", className: "aif-button", onClick: retry }, "Try again") : null,
  );
}

/**
 * Stand above an answer that is no longer fresh; goes away by itself when a look succeeds.
 *
 * @param {{error: (Error & {status?: number, detail?: string}) | null, stale: boolean}} props
 */
export function Stale({ error, stale }) {
  if (!stale || error === null) return null;
  if (error.status === 401) return h(SignedOut);
  const reason = error.status === 0 ? "The connection to Airflow is broken." : `Airflow refused: ${error.detail ?? ""}`;
  return h(
    "div",
    { className: "aif-stale", role: "status" },
    `${reason} What you see is the last answer; it is tried again every few seconds.`,
  );
}

/**
 * Show an answer, or what is known instead of it.
 *
 * @template T
 * @param {{look: import("./api.js").Look<T>, what?: string, label?: string, children?: (data: T) => Node}} props
 */
export function Answered({ look, what, label, children }) {
  if (look.data === undefined) {
    if (look.error) return h(Failed, { error: look.error, retry: look.reload, what });
    return h(Loading, { label });
  }
  return h("div", { className: "aif-answered" }, h(Stale, look), children?.(look.data));
}

/** A fault in a page of ours stays in it: without this the host would replace its whole page by an error. */
export class Boundary extends Component {
  /** @param {{children?: Node}} props */
  constructor(props) {
    super(props);
    /** @type {{error: Error | null}} */
    this.state = { error: null };
  }

  /** @param {Error} error */
  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    const { error } = this.state;
    if (error === null) return /** @type {{children?: Node}} */ (this.props).children;
    return h(
      "div",
      { className: "aif" },
      h(Failed, { error, retry: () => this.setState({ error: null }) }),
    );
  }
}
