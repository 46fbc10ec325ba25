// @ts-check
// The difference of two texts, line by line: what was taken away, what came, and what stayed around it.

/**
 * @typedef {{mark: "same" | "gone" | "new", text: string, before: number | null, after: number | null}} DiffLine
 * @typedef {{mark: "folded", count: number}} Fold
 */

/** Cells of the table of common subsequences: 16 kB of text against as much, in lines of one character, is 64 million. */
const MOST_CELLS = 4_000_000;

/**
 * Compare two texts.
 * @param {string} before
 * @param {string} after
 * @returns {DiffLine[]}
 */
export function lineDiff(before, after) {
  const left = lines(before);
  const right = lines(after);
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (
    tail < left.length - head &&
    tail < right.length - head &&
    left[left.length - 1 - tail] === right[right.length - 1 - tail]
  ) {
    tail += 1;
  }
  const middle = changed(left.slice(head, left.length - tail), right.slice(head, right.length - tail));
  const marks = [
    ...left.slice(0, head).map((text) => ({ mark: /** @type {const} */ ("same"), text })),
    ...middle,
    ...left.slice(left.length - tail).map((text) => ({ mark: /** @type {const} */ ("same"), text })),
  ];
  return numbered(marks);
}

/**
 * Fold long stretches that stayed, all but some lines next to a change.
 * @param {DiffLine[]} diff
 * @param {number} [around] lines that stay visible on each side
 * @returns {(DiffLine | Fold)[]}
 */
export function folded(diff, around = 3) {
  const near = new Array(diff.length).fill(false);
  diff.forEach((line, place) => {
    if (line.mark === "same") return;
    for (let each = Math.max(0, place - around); each <= Math.min(diff.length - 1, place + around); each += 1) {
      near[each] = true;
    }
  });
  /** @type {(DiffLine | Fold)[]} */
  const found = [];
  let hidden = 0;
  diff.forEach((line, place) => {
    if (near[place]) {
      if (hidden > 0) found.push({ mark: "folded", count: hidden });
      hidden = 0;
      found.push(line);
    } else {
      hidden += 1;
    }
  });
  if (hidden > 0) found.push({ mark: "folded", count: hidden });
  return found;
}

/** @param {string} text */
function lines(text) {
  return text === "" ? [] : text.replace(/\r\n?/g, "\n").replace(/\n$/, "").split("\n");
}

/**
 * @param {string[]} left
 * @param {string[]} right
 * @returns {{mark: "same" | "gone" | "new", text: string}[]}
 */
function changed(left, right) {
  if (left.length * right.length > MOST_CELLS) return replaced(left, right);
  const width = right.length + 1;
  const common = new Uint32Array((left.length + 1) * width);
  for (let row = left.length - 1; row >= 0; row -= 1) {
    for (let column = right.length - 1; column >= 0; column -= 1) {
      common[row * width + column] =
        left[row] === right[column]
          ? common[(row + 1) * width + column + 1] + 1
          : Math.max(common[(row + 1) * width + column], common[row * width + column + 1]);
    }
  }
  /** @type {{mark: "same" | "gone" | "new", text: string}[]} */
  const found = [];
  let row = 0;
  let column = 0;
  while (row < left.length && column < right.length) {
    if (left[row] === right[column]) {
      found.push({ mark: "same", text: left[row] });
      row += 1;
      column += 1;
    } else if (common[(row + 1) * width + column] >= common[row * width + column + 1]) {
      found.push({ mark: "gone", text: left[row] });
      row += 1;
    } else {
      found.push({ mark: "new", text: right[column] });
      column += 1;
    }
  }
  return [...found, ...replaced(left.slice(row), right.slice(column))];
}

/**
 * @param {string[]} left
 * @param {string[]} right
 * @returns {{mark: "same" | "gone" | "new", text: string}[]}
 */
function replaced(left, right) {
  return [
    ...left.map((text) => ({ mark: /** @type {const} */ ("gone"), text })),
    ...right.map((text) => ({ mark: /** @type {const} */ ("new"), text })),
  ];
}

/**
 * @param {{mark: "same" | "gone" | "new", text: string}[]} marks
 * @returns {DiffLine[]}
 */
function numbered(marks) {
  let before = 0;
  let after = 0;
  return marks.map(({ mark, text }) => {
    if (mark !== "new") before += 1;
    if (mark !== "gone") after += 1;
    return { mark, text, before: mark === "new" ? null : before, after: mark === "gone" ? null : after };
  });
}
