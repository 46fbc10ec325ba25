/** An attempt in the side panel: who it was, how it ended, where its log is. */

import { Link, h } from "./host.js";
import { plural } from "./money.js";
import { Pairs, StateBadge, Time } from "./parts.js";
import { taskAddress } from "./places.js";
import { duration } from "./time.js";
import { signWords, whyEnded } from "./timeline_words.js";

/** @param {{lane: import("./timeline_model.js").Lane, address: import("./task_page.js").Address}} props */
export function AttemptFacts({ lane, address }) {
  const { attempt } = lane;
  const why = whyEnded(attempt);
  const log = `${taskAddress(address)}?try_number=${attempt.try_number}`;
  return h(Pairs, {
    pairs: [
      ["How it ended", h(StateBadge, { state: attempt.outcome })],
      why ? ["Why", why] : null,
      ["How it came", signWords(attempt.sign)],
      ["Started", h(Time, { at: attempt.started_at })],
      attempt.ended_at ? ["Ended", h("span", {}, h(Time, { at: attempt.ended_at }), ` after ${duration(lane.to - lane.from)}`)] : null,
      lane.found > 0 ? ["Found", `${plural(lane.found, "step")} recorded by earlier attempts`] : null,
      ["Recorded", plural(lane.recorded, "step")],
      ["Process", h("span", { className: "aif-mono" }, `${attempt.pid} on ${attempt.host}`)],
      ["Log", h(Link, { to: log }, `of Airflow's try ${attempt.try_number}`)],
    ],
  });
}
