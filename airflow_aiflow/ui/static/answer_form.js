/** Say one thing about what waits: with a reason, and with the result where a call happened. */

import { h, useEffect, useId, useRef, useState } from "./host.js";
import { checkResult } from "./json_check.js";
import { Button } from "./parts.js";
import { Refused } from "./pieces.js";

/** @typedef {import("./inbox_words.js").Deed} Deed */

/** Characters of a reason; what the ledger takes. */
const LONGEST_REASON = 2000;

/**
 * @param {{deed: Deed, about: string, busy: boolean, error: import("./api.js").ApiError | null,
 *   onSay: (said: {reason: string, result?: unknown}) => void, onCancel: () => void}} props
 */
export function AnswerForm({ deed, about, busy, error, onSay, onCancel }) {
  const [reason, setReason] = useState("");
  const [text, setText] = useState("");
  const first = useRef(/** @type {any} */ (null));
  const id = useId();
  const result = checkResult(text);
  useEffect(() => first.current?.focus(), []);
  const say = (/** @type {any} */ event) => {
    event.preventDefault();
    if (result.state === "bad" || busy) return;
    onSay({ reason, ...(result.state === "good" ? { result: result.value } : {}) });
  };
  const escape = (/** @type {any} */ event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onCancel();
  };
  return h(
    "form",
    { className: "aif-answer", onSubmit: say, onKeyDown: escape, "aria-label": `${deed.label}: ${about}` },
    deed.hint ? h("p", { className: "aif-answer-hint" }, deed.hint) : null,
    h(
      "div",
      { className: "aif-field" },
      h("label", { htmlFor: `${id}reason` }, "Reason, for whoever reads this later (optional)"),
      h("input", {
        id: `${id}reason`,
        ref: first,
        className: "aif-input",
        value: reason,
        maxLength: LONGEST_REASON,
        autoComplete: "off",
        onChange: (/** @type {any} */ event) => setReason(event.target.value),
      }),
    ),
    deed.result
      ? h(
          "div",
          { className: "aif-field" },
          h("label", { htmlFor: `${id}result` }, "Result as JSON: what the effect gives the task from now on (optional)"),
          h("textarea", {
            id: `${id}result`,
            className: "aif-textarea aif-mono",
            value: text,
            rows: 2,
            spellCheck: false,
            placeholder: '{"id": "ch_42"}',
            "aria-invalid": result.state === "bad",
            "aria-describedby": `${id}check`,
            onChange: (/** @type {any} */ event) => setText(event.target.value),
          }),
          h(
            "p",
            { id: `${id}check`, className: result.state === "bad" ? "aif-refused" : "aif-muted", "aria-live": "polite" },
            { none: "Nothing given: the effect gives null.", good: "Good JSON.", bad: result.state === "bad" ? result.why : "" }[
              result.state
            ],
          ),
        )
      : null,
    h(Refused, { error }),
    h(
      "div",
      { className: "aif-row" },
      h(
        "button",
        {
          type: "submit",
          className: `aif-button ${deed.tone === "stop" ? "aif-button-danger" : "aif-button-solid"}`,
          disabled: busy || result.state === "bad",
        },
        busy ? "Saying it …" : `${deed.label} (${about})`,
      ),
      h(Button, { onClick: onCancel }, "Cancel"),
    ),
  );
}
