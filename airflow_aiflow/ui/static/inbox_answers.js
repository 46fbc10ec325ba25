/** Who answered what, newest first: for audit, and for the second person who comes. */

import { usePoll } from "./api.js";
import { h } from "./host.js";
import { KINDS } from "./inbox_words.js";
import { Badge, Time } from "./parts.js";
import { Place, Table, whenAnswered } from "./pieces.js";
import { Empty } from "./states.js";

const SAID = { happened: "It happened", did_not_happen: "It did not happen", fail: "Fail the task", released: "May be done once more" };

export function AnswersList() {
  const look = usePoll("/inbox/answers", { limit: 100 });
  return whenAnswered(look, "the answers", (data) =>
    data.items.length === 0
      ? h(Empty, { title: "Nobody answered anything yet" }, "Each word of a person is kept here, with who said it and why.")
      : h(Table, {
          label: "Who answered what",
          heads: ["When", "Who", "Said", "About", "Where", "Reason"],
          rows: data.items.map((/** @type {any} */ item) => ({
            key: `${item.number} ${item.at} ${item.said}`,
            cells: [
              h(Time, { at: item.at }),
              item.by,
              h(Badge, { tone: item.said === "happened" ? "success" : "neutral" }, SAID[/** @type {keyof typeof SAID} */ (item.said)] ?? item.said),
              h(
                "span",
                {},
                `#${item.number} `,
                item.effect && item.what !== "ask" ? h("strong", { title: KINDS[/** @type {keyof typeof KINDS} */ (item.what)] }, item.effect.name) : item.subject,
                item.effect?.key && item.what !== "ask" ? h("span", { className: "aif-mono" }, ` ${item.effect.key}`) : null,
              ),
              h(Place, { execution: item.execution }),
              item.reason || h("span", { className: "aif-muted" }, "none given"),
            ],
          })),
        }),
  );
}
