/** Values and sizes as text; pure. */

/**
 * Write a recorded value so that a person can read it: text as it is, everything else as indented JSON.
 *
 * @param {unknown} value
 */
export function written(value) {
  if (value === undefined || value === null) return "null";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/**
 * Name a value in which there is nothing to see; `null` where there is.
 *
 * @param {unknown} value
 */
export function emptyWord(value) {
  if (value === null || value === undefined) return "none";
  if (value === "") return "an empty text";
  if (Array.isArray(value)) return value.length === 0 ? "an empty list" : null;
  return typeof value === "object" && Object.keys(value).length === 0 ? "empty" : null;
}

/** @param {number | null | undefined} size in bytes */
export function bytes(size) {
  if (size === null || size === undefined) return "–";
  if (size < 1024) return `${size} bytes`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = size / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}
