// @ts-check
// A result that a person gives for a call that happened: JSON, checked while it is typed, and never changed on its way.

/** @typedef {{state: "none"} | {state: "good", value: unknown} | {state: "bad", why: string}} Checked */

/**
 * Check what was typed.
 * @param {string} text
 * @returns {Checked} `none` where nothing was given: the effect then gives null from now on
 */
export function checkResult(text) {
  if (text.trim() === "") return { state: "none" };
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return { state: "bad", why: explain(text) };
  }
  const lost = lossyNumber(text);
  if (lost !== null) {
    return {
      state: "bad",
      why: `The number ${lost} has more digits than a browser keeps. Give this result by the command line instead.`,
    };
  }
  return { state: "good", value };
}

/**
 * Say what is wrong, and where. Browsers word it differently, and not all name the place.
 * @param {string} text
 * @returns {string}
 */
function explain(text) {
  const word = text.trim();
  if (/^[^\s"{[\]},:0-9-][^"{[\]}]*$/.test(word) && !["true", "false", "null"].includes(word)) {
    return `Not JSON. A text needs double quotes: ${JSON.stringify(word.length > 40 ? `${word.slice(0, 40)}…` : word)}`;
  }
  const at = faultAt(text);
  if (at >= text.trimEnd().length) return "Not JSON yet: it ends too early.";
  const before = text.slice(0, at).split("\n");
  return `Not JSON: look at line ${before.length}, column ${before[before.length - 1].length + 1}.`;
}

/** What a value or a name may begin with; the longest match is taken. */
const SCALAR =
  /(?:"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/y;

/**
 * Find the first place at which a text stops being JSON.
 * @param {string} text
 * @returns {number} the text's length where it ends too early
 */
function faultAt(text) {
  let at = 0;
  /** @type {string[]} */
  const open = [];
  let wants = "value";
  for (;;) {
    while (/[ \t\n\r]/.test(text[at] ?? "")) at += 1;
    const next = text[at];
    if (next === undefined) return text.length;
    const inside = open[open.length - 1];
    if (wants === "after") {
      if (next === inside) open.pop();
      else if (next === "," && inside !== undefined) wants = inside === "}" ? "name" : "value";
      else return at;
      at += 1;
    } else if (wants === "colon") {
      if (next !== ":") return at;
      wants = "value";
      at += 1;
    } else if (wants === "value" && (next === "{" || next === "[")) {
      open.push(next === "{" ? "}" : "]");
      wants = next === "{" ? "name" : "value";
      at += 1;
      while (/[ \t\n\r]/.test(text[at] ?? "")) at += 1;
      if (text[at] === open[open.length - 1]) wants = "after";
    } else {
      SCALAR.lastIndex = at;
      const found = SCALAR.exec(text)?.[0];
      if (found === undefined || (wants === "name" && !found.startsWith('"'))) {
        return next === '"' && !/["\n]/.test(text.slice(at + 1)) ? text.length : at;
      }
      at += found.length;
      wants = wants === "name" ? "colon" : "after";
    }
  }
}

/**
 * Find a number that would not arrive as it was written.
 * @param {string} text valid JSON
 * @returns {string | null}
 */
function lossyNumber(text) {
  const bare = text.replace(/"(?:[^"\\]|\\.)*"/g, '""');
  for (const number of bare.match(/-?\d[\d.eE+-]*/g) ?? []) {
    const read = Number(number);
    if (!Number.isFinite(read)) return number;
    if (/^-?\d+$/.test(number) ? !Number.isSafeInteger(read) : digits(number) > 17) return number;
  }
  return null;
}

/** @param {string} number */
function digits(number) {
  return number.replace(/[eE].*$/, "").replace(/[^0-9]/g, "").replace(/^0+/, "").length;
}
