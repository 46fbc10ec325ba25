// All that a page needs: one client, one call, and what to show when something is heard.
import { AiflowClient } from "./aiflow.js";

const client = new AiflowClient({ baseUrl: new URL("../..", import.meta.url) });
const find = (id) => document.getElementById(id);

/** Show one submission, and keep showing it. */
function show(job, pipeline) {
  const item = find("job").content.cloneNode(true).firstElementChild;
  const part = (name) => item.querySelector(name);
  let text = "";
  find("jobs").prepend(item);
  part(".pipeline").textContent = pipeline;
  part(".state").textContent = "being handed in";
  part(".cancel").addEventListener("click", () => job.cancel().catch((error) => failed(error)));

  function ended() {
    part(".cancel").hidden = true;
    part("progress").hidden = true;
  }
  function failed(error) {
    item.classList.add("failed");
    part(".message").textContent = error.message;
  }
  job
    .on("submitted", (id) => (part(".id").textContent = item.dataset.id = id))
    .on("state", (state) => (part(".state").textContent = state))
    .on("progress", ({ done, total, message }) => {
      if (total) Object.assign(part("progress"), { max: total, value: done });
      part(".message").textContent = `${done}${total ? ` of ${total}` : ""} ${message}`;
    })
    .on("attempt", () => (part(".text").textContent = text = ""))
    .on("delta", (delta) => {
      // An answer that begins anew begins at 0.
      text = delta.at ? text + delta.text : delta.text;
      part(".text").textContent = text;
    })
    .on("completed", (result) => {
      ended();
      part(".text").textContent = "";
      part(".result").hidden = false;
      part(".result").textContent =
        result instanceof Blob ? `${result.size} bytes` : typeof result === "string" ? result : JSON.stringify(result, null, 2);
    })
    .on("failed", (error) => {
      ended();
      part(".state").textContent = job.state ?? "refused";
      failed(error);
    })
    .on("offline", () => (find("offline").hidden = false))
    .on("online", () => (find("offline").hidden = true));
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const wrong = find("wrong");
  wrong.hidden = true;
  let input;
  try {
    input = JSON.parse(find("input").value);
  } catch (error) {
    wrong.textContent = `The input is no JSON: ${error.message}`;
    wrong.hidden = false;
    return;
  }
  const pipeline = find("pipeline").value;
  const job = client.submit(pipeline, input);
  // Pressed twice it is the same one, which is shown already.
  if (!shown.has(job)) show(job, pipeline);
  shown.add(job);
});

const shown = new WeakSet();
for (const job of client.resume()) {
  shown.add(job);
  show(job, "handed in before");
}
