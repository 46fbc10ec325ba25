/** Small pieces that every page is made of. */

import { Fragment, h, useEffect, useLayoutEffect, useRef, useState, useTimeZone } from "./host.js";
import { clockTime, moment, utc } from "./time.js";

/** @typedef {import("./host.js").Node} Node */
/** @typedef {"success" | "failed" | "running" | "queued" | "warning" | "info" | "neutral" | "waiting" | "skipped"} Tone */

/** @type {Record<string, Tone>} Each state's colour, by Airflow's own meaning of colours. */
const TONES = {
  running: "running",
  paused: "waiting",
  waiting: "waiting",
  succeeded: "success",
  success: "success",
  done: "success",
  failed: "failed",
  killed: "failed",
  cancelled: "skipped",
  superseded: "skipped",
  in_doubt: "warning",
  intended: "queued",
  queued: "queued",
  ran: "success",
  replayed: "info",
  reused: "waiting",
  compensated: "skipped",
  released: "info",
};

/** @param {string} state */
export const toneOf = (state) => TONES[state] ?? "neutral";

/** @param {string} state */
export const wordOf = (state) => state.replaceAll("_", " ");

/** @param {{tone?: Tone, title?: string, children?: Node}} props */
export function Badge({ tone = "neutral", title, children }) {
  return h("span", { className: `aif-badge aif-tone-${tone}`, title }, children);
}

/** @param {{state: string, title?: string}} props */
export const StateBadge = ({ state, title }) => h(Badge, { tone: toneOf(state), title }, wordOf(state));

/**
 * A moment in the person's zone, UTC on hover.
 *
 * @param {{at: string | number | null | undefined, short?: boolean}} props `short`: the time of day alone
 */
export function Time({ at, short = false }) {
  const zone = useTimeZone();
  if (at === null || at === undefined) return h("span", { className: "aif-muted" }, "–");
  const iso = new Date(at).toISOString();
  return h("time", { dateTime: iso, title: utc(at) }, short ? clockTime(at, zone) : moment(at, zone));
}

/** @returns {number} The time now, once a second; for ages and times to go. */
export function useNow() {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/**
 * A figure of a head line: what, how much, and a line that explains it.
 *
 * @param {{label: string, value: Node, note?: Node, tone?: Tone, title?: string}} props
 */
export function Figure({ label, value, note, tone, title }) {
  return h(
    "div",
    { className: `aif-figure${tone ? ` aif-figure-${tone}` : ""}`, title },
    h("dt", {}, label),
    h("dd", { className: "aif-figure-value" }, value),
    note ? h("dd", { className: "aif-figure-note" }, note) : null,
  );
}

/** @param {{label: string, children?: Node}} props */
export const Figures = ({ label, children }) => h("dl", { className: "aif-figures", "aria-label": label }, children);

/** @param {{solid?: boolean, danger?: boolean, small?: boolean, onClick?: (event: any) => void, disabled?: boolean, children?: Node, [more: string]: any}} props */
export function Button({ solid, danger, small, children, ...rest }) {
  const looks = [solid && "aif-button-solid", danger && "aif-button-danger", small && "aif-button-small"];
  const className = ["aif-button", ...looks].filter(Boolean).join(" ");
  return h("button", { type: "button", className, ...rest }, children);
}

/** @param {{title: Node, actions?: Node, children?: Node, id?: string}} props */
export function Section({ title, actions, children, id }) {
  return h(
    "section",
    { className: "aif-section", "aria-labelledby": id },
    h("div", { className: "aif-section-head" }, h("h2", { id }, title), actions ?? null),
    children,
  );
}

/** @param {{pairs: ([string, Node] | null)[]}} props a pair without a value is left out */
export function Pairs({ pairs }) {
  const shown = /** @type {[string, Node][]} */ (
    pairs.filter((pair) => pair !== null && pair[1] !== null && pair[1] !== undefined)
  );
  return h(
    "dl",
    { className: "aif-pairs" },
    shown.map(([name, value]) => h(Fragment, { key: name }, h("dt", {}, name), h("dd", {}, value))),
  );
}

/**
 * A panel beside the page: Escape closes it and gives the focus back to what opened it.
 *
 * @param {{title: string, onClose: () => void, children?: Node}} props
 */
export function SidePanel({ title, onClose, children }) {
  const heading = useRef(/** @type {HTMLHeadingElement | null} */ (null));
  useLayoutEffect(() => {
    const before = document.activeElement;
    heading.current?.focus({ preventScroll: true });
    // On a narrow page it opens below the picture, where little of it would be seen.
    const below = (heading.current?.getBoundingClientRect().top ?? 0) > globalThis.innerHeight * 0.6;
    if (below) heading.current?.scrollIntoView({ block: "start" });
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: !below });
    };
  }, [title]);
  return h(
    "aside",
    {
      className: "aif-panel",
      "aria-label": title,
      onKeyDown: (/** @type {any} */ event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onClose();
      },
    },
    h(
      "div",
      { className: "aif-panel-head" },
      h("h2", { ref: heading, tabIndex: -1 }, title),
      h(Button, { small: true, onClick: onClose, "aria-label": "Close the panel" }, "✕"),
    ),
    h("div", { className: "aif-panel-body" }, children),
  );
}

/**
 * A modal question; the browser keeps the focus inside and closes it by Escape.
 *
 * @param {{title: string, open: boolean, onClose: () => void, wide?: boolean, children?: Node}} props
 */
export function Dialog({ title, open, onClose, wide, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    const shown = element.current;
    if (!open || !shown) return undefined;
    const before = document.activeElement;
    if (!shown.open) shown.showModal();
    return () => {
      // Removed from the page without it, a dialog gives the focus to nobody.
      shown.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, [open]);
  if (!open) return null;
  return h(
    "dialog",
    {
      ref: element,
      className: `aif-dialog${wide ? " aif-dialog-wide" : ""}`,
      "aria-label": title,
      onCancel: (/** @type {any} */ event) => {
        event.preventDefault();
        onClose();
      },
    },
    h(
      "div",
      { className: "aif-panel-head" },
      h("h2", {}, title),
      h(Button, { small: true, onClick: onClose, "aria-label": "Close" }, "✕"),
    ),
    children,
  );
}

/**
 * A long list of equally high rows of which only those in sight are in the page.
 *
 * @template T
 * @param {{items: T[], rowHeight: number, height: number, label: string, render: (item: T, index: number) => Node, onEnd?: () => void}} props
 */
export function VirtualList({ items, rowHeight, height, label, render, onEnd }) {
  const [top, setTop] = useState(0);
  const first = Math.max(0, Math.floor(top / rowHeight) - 5);
  const last = Math.min(items.length, Math.ceil((top + height) / rowHeight) + 5);
  useEffect(() => {
    if (onEnd && last >= items.length) onEnd();
  }, [last, items.length, onEnd]);
  const tall = { height: items.length * rowHeight, position: /** @type {const} */ ("relative") };
  return h(
    "div",
    {
      className: "aif-list",
      style: { maxHeight: height },
      tabIndex: 0,
      role: "list",
      "aria-label": label,
      onScroll: (/** @type {any} */ event) => setTop(event.currentTarget.scrollTop),
    },
    h(
      "div",
      { style: tall, role: "presentation" },
      items.slice(first, last).map((item, at) =>
        h(
          "div",
          {
            key: first + at,
            role: "listitem",
            "aria-setsize": items.length,
            "aria-posinset": first + at + 1,
            className: "aif-list-row",
            style: { top: (first + at) * rowHeight, height: rowHeight },
          },
          render(item, first + at),
        ),
      ),
    ),
  );
}
