/** Find an effect by its key, a run by its id or a label, a stored result by its hash. */

import { usePoll } from "./api.js";
import { Link, h, useEffect, useRef, useState, useSearchParams } from "./host.js";
import { Badge } from "./parts.js";
import { PageHead, Place, Table, whenAnswered } from "./pieces.js";
import { runPageAddress, timelineAddress } from "./places.js";
import { Empty } from "./states.js";

/** @type {Record<string, string>} */
const WHAT = { effect: "Effect", run: "Run", artifact: "Artifact", execution: "Task" };

/** Milliseconds of stillness after which what was typed is looked for. */
const PAUSE = 300;

export function SearchPage() {
  const [params, setParams] = useSearchParams();
  const asked = params.get("q") ?? "";
  const [text, setText] = useState(asked);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const query = text.trim();
  useEffect(() => field.current?.focus(), []);
  useEffect(() => {
    if (query === asked) return undefined;
    const timer = setTimeout(() => setParams({ q: query || null }), PAUSE);
    return () => clearTimeout(timer);
  }, [query, asked, setParams]);
  const look = usePoll(asked ? "/search" : null, { q: asked }, { every: null });
  return h(
    "div",
    { className: "aif-stack" },
    h(PageHead, { title: "Search", lead: "By an effect's key or a run's id, whole as it is written, a task's label as name=value, or the SHA-256 of a stored result: its first six digits at least." }),
    h(
      "form",
      {
        role: "search",
        onSubmit: (/** @type {any} */ event) => {
          event.preventDefault();
          setParams({ q: query || null });
        },
      },
      h("input", {
        ref: field,
        type: "search",
        className: "aif-input aif-search",
        value: text,
        placeholder: "billing/4711",
        "aria-label": "Effect key, run id, label or artifact hash",
        onChange: (/** @type {any} */ event) => setText(event.target.value),
      }),
    ),
    asked ? whenAnswered(look, "this", (data) => h(Found, { items: data.items ?? data, asked })) : null,
  );
}

/** @param {{items: any[], asked: string}} props */
function Found({ items, asked }) {
  if (items.length === 0) {
    return h(Empty, { title: `Nothing found for “${asked}”` }, "Keys and run ids are looked up whole, as they are written; hashes by their first six digits or more.");
  }
  return h(Table, {
    label: "What was found",
    heads: ["What", "Found", "Where"],
    rows: items.map((item, place) => ({
      key: String(place),
      cells: [
        h(Badge, {}, WHAT[item.what] ?? item.what),
        h(Label, { item }),
        h(Place, { execution: item.execution }),
      ],
    })),
  });
}

/** @param {{item: any}} props */
function Label({ item }) {
  const { execution } = item;
  const to = execution.task_id ? timelineAddress(execution) : runPageAddress(execution.dag_id, execution.run_id);
  const number = item.number ? h("span", { className: "aif-muted" }, ` #${item.number}`) : null;
  return h("span", { className: "aif-mono" }, h(Link, { to }, item.label), number);
}
