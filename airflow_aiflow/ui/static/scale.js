/** Where a moment stands on an axis; pure. */

/** @typedef {{from: number, to: number}} Span ms since the epoch */
/** @typedef {{at: number, from: number, to: number}} Fold `at`: its middle, a fraction of the axis */
/** @typedef {{from: number, to: number, at: (ms: number) => number, folds: Fold[], pieces: Piece[]}} Scale */
/** @typedef {{from: number, to: number, left: number, right: number, folded: boolean}} Piece */

/** A pause is folded where it would take more than this share of what was at work. */
const WORTH_FOLDING = 0.12;
/** The width of a fold, as a share of the axis. */
const FOLD = 0.03;
/** At most so much of the axis goes to folds, however many there are. */
const ALL_FOLDS = 0.3;

/**
 * Join spans that touch or overlap.
 *
 * @param {Span[]} spans
 * @returns {Span[]}
 */
export function joined(spans) {
  const sorted = spans.filter((one) => one.to >= one.from).sort((a, b) => a.from - b.from);
  /** @type {Span[]} */
  const found = [];
  for (const { from, to } of sorted) {
    const last = found.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else found.push({ from, to });
  }
  return found;
}

/**
 * Make one axis over everything, on which long pauses between attempts are folded: a run that was cleared the next day
 * would else be two dots.
 *
 * @param {Span[]} spans what was at work
 * @returns {Scale} fractions from 0 to 1
 */
export function foldedScale(spans) {
  const busy = joined(spans);
  if (busy.length === 0) return foldedScale([{ from: 0, to: 1 }]);
  const from = busy[0].from;
  const to = Math.max(busy[busy.length - 1].to, from + 1);
  const work = Math.max(1, busy.reduce((sum, one) => sum + (one.to - one.from), 0));
  /** @type {{from: number, to: number, folded: boolean}[]} */
  const raw = [];
  let start = from;
  busy.slice(1).forEach((next, index) => {
    const end = busy[index].to;
    if (next.from - end <= work * WORTH_FOLDING) return;
    raw.push({ from: start, to: end, folded: false }, { from: end, to: next.from, folded: true });
    start = next.from;
  });
  raw.push({ from: start, to, folded: false });
  const folds = raw.filter((one) => one.folded).length;
  const fold = folds === 0 ? 0 : Math.min(FOLD, ALL_FOLDS / folds);
  const shown = raw.reduce((sum, one) => sum + (one.folded ? 0 : one.to - one.from), 0) || 1;
  let left = 0;
  const pieces = raw.map((one) => {
    const width = one.folded ? fold : ((one.to - one.from) / shown) * (1 - fold * folds);
    const piece = { ...one, left, right: left + width };
    left += width;
    return piece;
  });
  pieces[pieces.length - 1].right = 1;
  return {
    from,
    to,
    pieces,
    folds: pieces.filter((one) => one.folded).map((one) => ({ at: (one.left + one.right) / 2, from: one.from, to: one.to })),
    at: (ms) => placeOf(pieces, ms),
  };
}

/**
 * @param {Piece[]} pieces
 * @param {number} ms
 */
function placeOf(pieces, ms) {
  if (ms <= pieces[0].from) return 0;
  for (const piece of pieces) {
    if (ms > piece.to) continue;
    const length = piece.to - piece.from;
    return length === 0 ? piece.left : piece.left + ((ms - piece.from) / length) * (piece.right - piece.left);
  }
  return 1;
}

const S = 1000;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500,
  S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S,
  60 * S, 120 * S, 300 * S, 600 * S, 900 * S, 1800 * S,
  3600 * S, 7200 * S, 14400 * S, 21600 * S, 43200 * S, 86400 * S,
];

/**
 * Choose round moments for an axis, none inside a fold and none closer than `apart` to its neighbour.
 *
 * @param {Scale} scale
 * @param {number} wanted about so many
 * @param {number} apart fraction of the axis
 * @returns {{ms: number, at: number}[]}
 */
export function ticks(scale, wanted = 6, apart = 0.09) {
  const plain = scale.pieces.filter((piece) => !piece.folded);
  const length = plain.reduce((sum, piece) => sum + (piece.to - piece.from), 0);
  const step = STEPS.find((one) => length / one <= wanted) ?? 86400 * S * Math.ceil(length / wanted / (86400 * S));
  /** @type {{ms: number, at: number}[]} */
  const found = [];
  for (const piece of plain) {
    for (let ms = Math.ceil(piece.from / step) * step; ms <= piece.to; ms += step) {
      const at = scale.at(ms);
      const last = found.at(-1);
      if (!last || at - last.at >= apart) found.push({ ms, at });
    }
  }
  return found;
}

/**
 * Choose round values from 0 up to at least `most`.
 *
 * @param {number} most
 * @returns {number} the top of the axis
 */
export function niceTop(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((one) => one * power).find((top) => top >= most * 0.999999) ?? most;
}
