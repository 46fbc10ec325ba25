/**
 * What Airflow loads. It looks a page up on the global object under the name of the plugin's entry, which is also the
 * label that people read; one name may stand in several places, so the page is chosen by where it is shown.
 */

import { DagPage } from "./dag_page.js";
import { addStyle, h, register } from "./host.js";
import { HomePage } from "./home_page.js";
import { RunPage } from "./run_page.js";
import { Boundary } from "./states.js";
import { TaskPage } from "./task_page.js";

addStyle("app.css");
addStyle("home.css");

/** @param {import("./host.js").PageProps} props */
function pageFor({ dagId, runId, taskId, mapIndex }) {
  if (dagId && runId && taskId) return h(TaskPage, { dagId, runId, taskId, mapIndex: Number(mapIndex ?? -1) });
  if (dagId && runId) return h(RunPage, { dagId, runId });
  if (dagId) return h(DagPage, { dagId });
  return h(HomePage, {});
}

/** @param {import("./host.js").PageProps} props */
export default function AiflowPage(props) {
  const place = [props.dagId, props.runId, props.taskId, props.mapIndex].join("\n");
  return h(Boundary, { key: place }, h("div", { className: "aif" }, pageFor(props)));
}

/** The inbox has a place of its own in Browse, beside Airflow's Required Actions. */
function AiflowInbox() {
  return h(Boundary, {}, h("div", { className: "aif" }, h(HomePage, { section: "inbox" })));
}

register("AI Flow", AiflowPage);
register("AI Flow inbox", AiflowInbox);
