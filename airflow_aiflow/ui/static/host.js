/**
 * The only door to the page around us: Airflow's React, its router, its address, its colours and its time zone.
 *
 * Airflow puts React and ReactRouterDOM on the global object for plugins. Its component library is there as well and is
 * left alone: that global changed between patch releases.
 */

/** @typedef {import("react").ReactNode} Node */
/** @typedef {{dagId?: string, runId?: string, taskId?: string, mapIndex?: string}} PageProps */

const globals = /** @type {Record<string, any>} */ (/** @type {unknown} */ (globalThis));

/** @type {typeof import("react")} */
export const React = globals.React;

export const h = React.createElement;
export const {
  Component,
  Fragment,
  useCallback,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} = React;

const router = globals.ReactRouterDOM ?? {};

/**
 * Go to a page of Airflow without loading it anew; a plain link where the host gives no router.
 *
 * @param {{to: string, children?: Node, [more: string]: any}} props `to` as in `/dags/one`, without the prefix.
 */
export function Link(props) {
  const { to, ...rest } = props;
  return router.Link ? h(router.Link, { to, ...rest }) : h("a", { href: address(to), ...rest });
}

/** @returns {Record<string, string | undefined>} */
export function useParams() {
  return router.useParams ? router.useParams() : {};
}

/** @returns {{pathname: string, search: string}} The place as the router sees it, without the deployment's prefix. */
export function useLocation() {
  return router.useLocation ? router.useLocation() : globalThis.location;
}

/** @returns {(to: string, options?: {replace?: boolean}) => void} */
export function useNavigate() {
  const go = router.useNavigate ? router.useNavigate() : null;
  return go ?? ((/** @type {string} */ to) => globalThis.location.assign(address(to)));
}

/**
 * Keep a page's choices in its address: the host mounts each page twice after the first load, and people send links.
 *
 * @returns {[URLSearchParams, (changes: Record<string, string | null>) => void]} `null` takes a name away.
 */
export function useSearchParams() {
  const [params, set] = router.useSearchParams
    ? router.useSearchParams()
    : [new URLSearchParams(globalThis.location.search), () => undefined];
  const change = useCallback(
    (/** @type {Record<string, string | null>} */ changes) =>
      set(
        (/** @type {URLSearchParams} */ before) => {
          const next = new URLSearchParams(before);
          for (const [name, value] of Object.entries(changes)) {
            if (value === null) next.delete(name);
            else next.set(name, value);
          }
          return next;
        },
        { replace: true },
      ),
    [set],
  );
  return [params, change];
}

/**
 * Give the full address of something on this Airflow, whatever prefix it is served under.
 *
 * @param {string} path
 */
export function address(path) {
  return new URL(path.replace(/^\/+/, ""), document.baseURI).href;
}

/** Send the person to sign in, and back here afterwards; as Airflow's own pages do. */
export function signIn() {
  const target = new URL("api/v2/auth/login", document.baseURI);
  target.searchParams.set("next", globalThis.location.href);
  globalThis.location.assign(target.href);
}

const listen = (/** @type {() => void} */ told) => {
  globalThis.addEventListener("storage", told);
  globalThis.addEventListener("local-storage", told);
  return () => {
    globalThis.removeEventListener("storage", told);
    globalThis.removeEventListener("local-storage", told);
  };
};

const chosenZone = () => {
  try {
    return globalThis.localStorage.getItem("timezone") ?? "";
  } catch {
    return "";
  }
};

/** @returns {string | undefined} The zone that the person chose in Airflow; undefined: the browser's. */
export function useTimeZone() {
  const text = useSyncExternalStore(listen, chosenZone).replace(/^"|"$/g, "");
  return useMemo(() => {
    try {
      if (text) new Intl.DateTimeFormat("en", { timeZone: text });
      return text || undefined;
    } catch {
      return undefined;
    }
  }, [text]);
}

/**
 * Add a style sheet of ours, once; at module load, so that nothing flashes.
 *
 * @param {string} name
 */
export function addStyle(name) {
  const href = new URL(name, import.meta.url).href;
  if (document.querySelector(`link[href="${CSS.escape(href)}"]`)) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = href;
  document.head.append(link);
}

/**
 * Name a page as Airflow looks it up: a function on the global object under the name of the plugin's entry.
 *
 * @param {string} name
 * @param {(props: PageProps) => Node} page
 */
export function register(name, page) {
  globals[name] = page;
}
