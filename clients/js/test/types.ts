// Compiled, never run: what a caller in TypeScript may write, and what is refused.
import { AiflowClient, AiflowError, type Progress, type Submission } from "../aiflow.js";

const client = new AiflowClient({ baseUrl: new URL("https://airflow.example.com"), token: async (renew) => (renew ? "b" : "a") });
new AiflowClient();
new AiflowClient({ storage: localStorage, network: window, timing: { first: 1_000 } });

const job: Submission<{ text: string }> = client.submit<{ text: string }>("answer", { question: "why?" }, { key: "k" });
job
  .on("progress", (progress: Progress, of) => void [progress.done + (progress.total ?? 0), of.id])
  .on("delta", ({ at, text }) => text.slice(at))
  .on("completed", (result) => result.text.trim())
  .on("failed", (error: AiflowError) => error.problem?.errors?.[0]?.pointer ?? error.status)
  .on("state", (state) => state === "paused");
const text: Promise<string> = job.done.then((result) => result.text);
const all: Submission[] = client.resume();
export { all, text };

// @ts-expect-error there is no such event
job.on("finished", () => {});
// @ts-expect-error an input is an object
client.submit("answer", "why?");
// @ts-expect-error a result has the type that was asked for
job.on("completed", (result) => result.number);
