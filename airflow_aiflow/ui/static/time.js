/** Times and durations in words; pure. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/**
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  // Rounded before the unit is chosen: else there were 60 s and 60 min.
  const length = ms < 10 * SECOND ? Math.max(0, ms) : Math.round(ms / SECOND) * SECOND;
  if (length < 1) return length === 0 ? "0 ms" : "< 1 ms";
  if (Math.round(length) < SECOND) return `${Math.round(length)} ms`;
  if (length < 10 * SECOND) return `${(length / SECOND).toFixed(1)} s`;
  if (length < MINUTE) return `${Math.round(length / SECOND)} s`;
  if (length < HOUR) return pair(length, MINUTE, "min", SECOND, "s");
  if (length < DAY) return pair(length, HOUR, "h", MINUTE, "min");
  return pair(length, DAY, "d", HOUR, "h");
}

/**
 * @param {number} length
 * @param {number} big
 * @param {string} bigWord
 * @param {number} small
 * @param {string} smallWord
 */
function pair(length, big, bigWord, small, smallWord) {
  const whole = Math.floor(length / big);
  const rest = Math.floor((length - whole * big) / small);
  return rest === 0 ? `${whole} ${bigWord}` : `${whole} ${bigWord} ${rest} ${smallWord}`;
}

/**
 * @param {string | number | Date | null | undefined} when
 * @returns {number | null} ms since the epoch
 */
export function instant(when) {
  if (when === null || when === undefined || when === "") return null;
  const ms = typeof when === "number" ? when : new Date(when).getTime();
  return Number.isFinite(ms) ? ms : null;
}

/**
 * Give date and time of day to the second.
 *
 * @param {string | number | Date | null | undefined} when
 * @param {string} [zone] IANA name; without it the browser's
 */
export function moment(when, zone) {
  const ms = instant(when);
  if (ms === null) return "–";
  const parts = partsOf(ms, zone);
  return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}`;
}

/**
 * Give the time of day; for axes and lists of one day.
 *
 * @param {string | number | Date | null | undefined} when
 * @param {string} [zone]
 * @param {boolean} [fine] with milliseconds
 */
export function clockTime(when, zone, fine = false) {
  const ms = instant(when);
  if (ms === null) return "–";
  const parts = partsOf(ms, zone);
  const text = `${parts.hour}:${parts.minute}:${parts.second}`;
  return fine ? `${text}.${String(Math.floor(((ms % SECOND) + SECOND) % SECOND)).padStart(3, "0")}` : text;
}

/**
 * @param {string | number | Date | null | undefined} when
 */
export function utc(when) {
  const ms = instant(when);
  return ms === null ? "" : `${new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z$/, "")} UTC`;
}

/**
 * @param {string | number | Date | null | undefined} when
 * @param {number} [now]
 */
export function since(when, now = Date.now()) {
  const ms = instant(when);
  return ms === null ? "–" : duration(Math.max(0, Math.round((now - ms) / SECOND) * SECOND));
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/**
 * @param {number} ms
 * @param {string | undefined} zone
 * @returns {Record<string, string>}
 */
function partsOf(ms, zone) {
  const name = zone ?? "";
  let format = formats.get(name);
  if (!format) {
    format = new Intl.DateTimeFormat("en-GB", {
      timeZone: zone,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      hourCycle: "h23",
    });
    formats.set(name, format);
  }
  return Object.fromEntries(format.formatToParts(ms).map((part) => [part.type, part.value]));
}
