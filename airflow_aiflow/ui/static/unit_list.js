/** The items of a map, asked for when somebody unfolds it, page by page. */

import { ApiError, get } from "./api.js";
import { h, useCallback, useEffect, useRef, useState } from "./host.js";
import { money, plural } from "./money.js";
import { Button, StateBadge, VirtualList } from "./parts.js";
import { Empty, Failed, Loading } from "./states.js";
import { duration } from "./time.js";

/** Items asked for at once. */
const PAGE = 200;

/**
 * @param {{address: import("./task_page.js").Address, map: import("./timeline_model.js").MapBar,
 *   generation: string | number | null, onSelect: (bar: {id: string}) => void}} props
 */
export function UnitList({ address, map, generation, onSelect }) {
  const [items, setItems] = useState(/** @type {any[]} */ ([]));
  const [next, setNext] = useState(/** @type {string | null | undefined} */ (undefined));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const asking = useRef(false);
  const more = useCallback(async () => {
    if (asking.current || next === null) return;
    asking.current = true;
    try {
      const page = await get("/units", { ...address, map: map.name, generation, after: next, limit: PAGE });
      setItems((before) => [...before, ...page.items]);
      setNext(page.next ?? null);
      setError(null);
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError(-1, String(failed)));
    } finally {
      asking.current = false;
    }
  }, [address, map.name, generation, next]);
  useEffect(() => {
    if (next === undefined) more();
  }, [more, next]);
  if (error && items.length === 0) return h(Failed, { error, retry: more });
  if (next === undefined) return h(Loading, { label: "Reading the items" });
  if (items.length === 0) return h(Empty, { title: "No item is recorded yet" });
  return h(
    "div",
    { className: "aif-stack" },
    h(VirtualList, {
      items,
      rowHeight: 34,
      height: 420,
      label: `Items of ${map.name}`,
      onEnd: next === null ? undefined : more,
      render: (/** @type {any} */ item) => h(Unit, { item, onSelect }),
    }),
    next !== null
      ? h("div", { className: "aif-row" }, h("span", { className: "aif-muted" }, `${plural(items.length, "item")} read`), h(Button, { small: true, onClick: more }, "Read more"))
      : null,
    error ? h(Failed, { error, retry: more }) : null,
  );
}

/** @param {{item: any, onSelect: (bar: {id: string}) => void}} props */
function Unit({ item, onSelect }) {
  const { key } = item;
  const name = item.item ?? `${item.name ?? "item"} ${String(item.key ?? "").slice(0, 8)}`;
  const cells = [
    h("span", { key: "name", className: "aif-cell-name", title: item.reason ?? name }, item.reason ? `${name}: ${item.reason}` : name),
    h("span", { key: "state" }, h(StateBadge, { state: item.state })),
    h("span", { key: "cost", className: "aif-cell-end" }, item.calls > 0 ? money(item.cost) : ""),
    h("span", { key: "took", className: "aif-cell-end" }, item.duration_ms === null || item.duration_ms === undefined ? "" : duration(item.duration_ms)),
  ];
  return item.state === "failed" || !key
    ? h("span", { className: "aif-list-button" }, cells)
    : h("button", { type: "button", className: "aif-list-button", onClick: () => onSelect({ id: `step:${key}` }) }, cells);
}
