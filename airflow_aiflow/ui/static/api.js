/** Ask our own routes, and Airflow's; and keep an answer fresh while somebody looks. */

import { address, useCallback, useEffect, useRef, useState } from "./host.js";

/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */

/** Milliseconds between two looks: the rhythm of Airflow's own pages. */
export const EVERY = 3000;

const OURS = "aiflow/api/v1/";

/** What a route answered that was no success; `status` 0: there was no answer at all. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} detail
   */
  constructor(status, detail) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    this.detail = detail;
  }
}

/**
 * @param {Query} query null and undefined are left out.
 */
export function queryText(query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

/**
 * @param {Response} response
 * @returns {Promise<string>}
 */
async function refusal(response) {
  try {
    const body = await response.json();
    if (typeof body.detail === "string") return body.detail;
    if (typeof body.title === "string") return body.title;
    return JSON.stringify(body.detail ?? body);
  } catch {
    return `${response.status} ${response.statusText}`.trim();
  }
}

/**
 * @param {string} path
 * @param {RequestInit} init
 */
async function send(path, init) {
  let response;
  try {
    response = await fetch(address(path), { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "Airflow's API server does not answer.");
  }
  if (!response.ok) throw new ApiError(response.status, await refusal(response));
  return response.status === 204 ? null : response.json();
}

/** @param {string} path of ours, as in `/timeline`; @param {Query} query */
export const routeOf = (path, query = {}) => OURS + path.replace(/^\/+/, "") + queryText(query);

/**
 * @param {string} path of ours, as in `/timeline`
 * @param {Query} [query]
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export function get(path, query, options = {}) {
  return send(routeOf(path, query), { headers: { Accept: "application/json" }, signal: options.signal });
}

/**
 * Change something. Always JSON with a body: a form of another site can't send that.
 *
 * @param {string} path of ours
 * @param {unknown} body
 * @returns {Promise<any>}
 */
export const post = (path, body) => core("POST", routeOf(path), body ?? {});

/**
 * Speak to Airflow's own API.
 *
 * @param {string} method
 * @param {string} path as in `api/v2/dags/one/clearTaskInstances`
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function core(method, path, body, signal) {
  const given = body === undefined ? {} : { body: JSON.stringify(body) };
  const headers = { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  return send(path, { method, headers, signal, ...given });
}

/**
 * @template T
 * @typedef {{data: T | undefined, error: ApiError | null, stale: boolean, reload: () => void}} Look
 */

/**
 * Look again and again while the page is visible. A failed look keeps the last answer and says `stale`; the next good
 * one heals it.
 *
 * @template T
 * @param {((signal: AbortSignal) => Promise<T>) | null} ask null: nothing to ask for
 * @param {string} key what is asked for; another key begins anew
 * @param {number | null} every milliseconds; null: once
 * @returns {Look<T>}
 */
export function useLook(ask, key, every = EVERY) {
  const [seen, setSeen] = useState(
    /** @type {{key: string, data?: T, error: ApiError | null}} */ ({ key, error: null }),
  );
  const [round, setRound] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    const stop = new AbortController();
    /** @type {number | undefined} */
    let timer;
    let busy = false;
    const look = async () => {
      if (busy || !latest.current) return;
      clearTimeout(timer);
      busy = true;
      try {
        const data = await latest.current(stop.signal);
        if (!stop.signal.aborted) setSeen({ key, data, error: null });
      } catch (error) {
        if (stop.signal.aborted) return;
        const failed = error instanceof ApiError ? error : new ApiError(-1, String(error));
        setSeen((before) => ({ key, data: before.key === key ? before.data : undefined, error: failed }));
      } finally {
        busy = false;
        if (every !== null && !stop.signal.aborted && document.visibilityState === "visible") {
          timer = window.setTimeout(look, every);
        }
      }
    };
    const shown = () => {
      if (document.visibilityState === "visible" && every !== null) look();
    };
    look();
    document.addEventListener("visibilitychange", shown);
    globalThis.addEventListener("online", shown);
    return () => {
      stop.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
      globalThis.removeEventListener("online", shown);
    };
  }, [key, every, round]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  const mine = seen.key === key;
  const data = mine ? seen.data : undefined;
  const error = mine ? seen.error : null;
  return { data, error, stale: error !== null && data !== undefined, reload };
}

/**
 * @param {string | null} path of ours; null: ask for nothing
 * @param {Query} [query]
 * @param {{every?: number | null}} [options]
 * @returns {Look<any>}
 */
export function usePoll(path, query, options = {}) {
  const key = path === null ? "" : routeOf(path, query);
  const every = options.every === undefined ? EVERY : options.every;
  return useLook(path === null ? null : (signal) => get(path, query, { signal }), key, every);
}
