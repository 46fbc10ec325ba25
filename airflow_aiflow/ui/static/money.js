// @ts-check
// Amounts and counts for people. Money comes as decimal text in US dollars; null means that no price is known.

/** Below this an amount is shown with two significant digits: a call for $0.0042 is not one for nothing. */
const CENTS_MATTER_FROM = 0.1;

/**
 * Write an amount.
 * @param {string | number | null | undefined} amount in US dollars
 * @returns {string}
 */
export function money(amount) {
  if (amount === null || amount === undefined || amount === "") return "price unknown";
  const value = Number(amount);
  if (!Number.isFinite(value)) return "price unknown";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size === 0) return "$0";
  if (size < 0.000001) return `${sign}< $0.000001`;
  if (size >= CENTS_MATTER_FROM) {
    return `${sign}$${size.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  }
  const digits = Math.min(6, 1 - Math.floor(Math.log10(size)));
  return `${sign}$${size.toFixed(digits).replace(/0+$/, "").replace(/\.$/, "")}`;
}

/**
 * Write an amount of which some prices are unknown.
 * @param {string | null | undefined} amount
 * @param {number | null | undefined} calls that it is for
 * @param {number | null | undefined} unpriced how many of them have no known price
 * @returns {string}
 */
export function priced(amount, calls, unpriced) {
  const missing = unpriced ?? 0;
  if (missing > 0 && missing >= (calls ?? 0)) return "price unknown";
  return missing > 0 ? `${money(amount)} and ${plural(missing, "call")} of unknown price` : money(amount);
}

/**
 * Write a whole number with separators.
 * @param {number | null | undefined} number
 * @returns {string}
 */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en-US");
}

/**
 * Write a number with what it counts.
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 * @returns {string}
 */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * Write a share; neither all nor nothing is rounded up to.
 * @param {number | null | undefined} share between 0 and 1
 * @returns {string}
 */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  if (share > 0 && share < 0.001) return "< 0.1%";
  if (share < 1 && share > 0.999) return "> 99.9%";
  const rounded = Math.round(share * 1000) / 10;
  return `${Number.isInteger(rounded) ? rounded : rounded.toFixed(1)}%`;
}
