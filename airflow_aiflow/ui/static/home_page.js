/** The page behind "AI Flow" in the navigation: what is saved, what waits, what recovery did, batches, limits, search. */

import { usePoll } from "./api.js";
import { BatchesPage } from "./batches.js";
import { Link, h, useEffect, useLocation } from "./host.js";
import { InboxPage } from "./inbox.js";
import { HOME, pageTitle } from "./inbox_words.js";
import { LimitsPage } from "./limits.js";
import { count } from "./money.js";
import { OverviewPage } from "./overview.js";
import { RecoveriesPage } from "./recoveries.js";
import { SearchPage } from "./search.js";

/** Milliseconds between two looks at how much waits, from every page but the inbox, which looks by itself. */
const COUNT_EVERY = 10000;

const PAGES = [
  { name: "overview", label: "Overview", page: OverviewPage },
  { name: "inbox", label: "Inbox", page: InboxPage },
  { name: "recoveries", label: "Recoveries", page: RecoveriesPage },
  { name: "batches", label: "Batches", page: BatchesPage },
  { name: "limits", label: "Limits", page: LimitsPage },
  { name: "search", label: "Search", page: SearchPage },
];

/** @param {{section?: string}} props `section`: of an entry of the navigation that stands for one page */
export function HomePage({ section }) {
  const { pathname } = useLocation();
  const deeper = section ?? /\/plugin\/[^/]+\/([^/]+)/.exec(pathname)?.[1];
  const chosen = PAGES.find((each) => each.name === deeper) ?? PAGES[0];
  const look = usePoll("/inbox/count", {}, { every: COUNT_EVERY });
  const waiting = look.data?.count ?? null;
  useTitle(waiting);
  return h(
    "div",
    { className: "aif-home" },
    h(
      "nav",
      { className: "aif-tabs", "aria-label": "AI Flow" },
      PAGES.map(({ name, label }) =>
        h(
          Link,
          {
            key: name,
            to: `${HOME}/${name}`,
            className: "aif-tab",
            "aria-current": name === chosen.name ? "page" : undefined,
          },
          label,
          name === "inbox" && waiting
            ? h("span", { className: "aif-count", title: `${count(waiting)} waiting` }, count(waiting))
            : null,
        ),
      ),
    ),
    h("main", { className: "aif-main", id: `aif-${chosen.name}` }, h(chosen.page, { counted: look.reload })),
  );
}

/** @param {number | null} waiting */
function useTitle(waiting) {
  useEffect(() => {
    document.title = pageTitle(document.title, waiting);
    return () => {
      document.title = pageTitle(document.title, null);
    };
  }, [waiting]);
}
