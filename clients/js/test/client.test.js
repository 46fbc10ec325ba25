// Against a real server on a real ledger, which tests/integration/api/test_js_client.py starts; AIFLOW_URL says where.
import assert from "node:assert/strict";
import { after, test } from "node:test";

import { AiflowClient, AiflowError } from "../aiflow.js";

const URL_ = process.env.AIFLOW_URL;
const PATIENCE = 20_000;
const TIMING = { first: 1_500, pauses: [50, 100, 200] };

const open = [];
after(() => open.forEach((each) => each.close()));

let count = 0;
const question = () => ({ question: `why ${process.pid}-${++count}?` });

/** What a browser keeps over a reload. */
class Storage {
  held = new Map();
  get length() {
    return this.held.size;
  }
  key(place) {
    return [...this.held.keys()][place] ?? null;
  }
  getItem(slot) {
    return this.held.get(slot) ?? null;
  }
  setItem(slot, value) {
    this.held.set(slot, value);
  }
  removeItem(slot) {
    this.held.delete(slot);
  }
}

class Network extends EventTarget {
  navigator = { onLine: true };
  goes(onLine) {
    this.navigator.onLine = onLine;
    this.dispatchEvent(new Event(onLine ? "online" : "offline"));
  }
}

function client(options = {}) {
  return new AiflowClient({ baseUrl: URL_, timing: TIMING, storage: new Storage(), ...options });
}

function watched(job) {
  open.push(job);
  job.seen = { ticks: [], states: [], progress: [], deltas: [], attempts: [] };
  job.on("event", (event) => event.kind === "tick" && job.seen.ticks.push(event.data.number));
  job.on("state", (state) => job.seen.states.push(state));
  job.on("progress", (progress) => job.seen.progress.push(progress));
  job.on("delta", (delta) => job.seen.deltas.push(delta.text));
  job.on("attempt", (event) => job.seen.attempts.push(event.attempt));
  return job;
}

async function until(holds, what = "it") {
  const deadline = Date.now() + PATIENCE;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, `waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function control(deed, body = {}) {
  const answer = await fetch(`${URL_}/control/${deed}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  assert.equal(answer.status, 200, await answer.clone().text());
  return answer.json();
}

async function begun(job) {
  await until(() => job.id, "an id");
  await control("begin", { id: job.id });
}

const ticks = (job, numbers) => control("emit", { id: job.id, numbers });
const range = (from, to) => Array.from({ length: to - from }, (_, place) => from + place);

test("it is followed to its result", async () => {
  const storage = new Storage();
  const job = watched(client({ storage }).submit("answer", question()));
  await begun(job);
  assert.equal(storage.length, 1);
  await control("progress", { id: job.id, done: 1, total: 2, message: "half" });
  await until(() => job.progress);
  assert.deepEqual([job.progress.done, job.progress.total, job.progress.message], [1, 2, "half"]);
  await ticks(job, range(0, 20));
  await control("end", { id: job.id, result: { why: "because" } });
  assert.deepEqual(await job.done, { why: "because" });
  assert.deepEqual(job.seen.ticks, range(0, 20));
  assert.equal(job.seen.states.at(-1), "succeeded");
  assert.equal(storage.length, 0);
  let late;
  job.on("completed", (result) => (late = result));
  await until(() => late);
});

test("a page that is loaded anew goes on with its task and sees all of it", async () => {
  const storage = new Storage();
  const input = question();
  const first = watched(client({ storage }).submit("answer", input));
  await begun(first);
  await control("progress", { id: first.id, done: 1, total: 4, message: "" });
  await until(() => first.progress);
  first.close();
  const again = watched(client({ storage }).submit("answer", input));
  await until(() => again.progress);
  assert.equal(again.id, first.id);
  again.close();
  const [resumed] = client({ storage }).resume().map(watched);
  await control("end", { id: first.id, result: 1 });
  assert.equal(await resumed.done, 1);
  assert.equal(resumed.id, first.id);
  assert.equal(first.seen.states.includes("succeeded"), false);
});

test("a button pressed twice is one task, and the next one after its end is another", async () => {
  const one = client();
  const input = { question: question().question };
  const job = watched(one.submit("answer", input));
  assert.equal(one.submit("answer", { ...input }), job);
  await begun(job);
  await control("end", { id: job.id });
  await job.done;
  const next = watched(one.submit("answer", input));
  await until(() => next.id);
  assert.notEqual(next.id, job.id);
});

test("a submit whose answer was lost, and whose page then died, is one task", async () => {
  const storage = new Storage();
  const input = question();
  let sent = 0;
  const lost = async (...request) => {
    if (request[1].method === "POST") {
      await fetch(...request);
      sent++;
      throw new TypeError("fetch failed");
    }
    return fetch(...request);
  };
  const first = watched(client({ storage, fetch: lost }).submit("answer", input));
  await until(() => sent > 1);
  first.close();
  const again = watched(client({ storage }).submit("answer", input));
  await until(() => again.id);
  assert.equal(await control("count", input), 1);
});

for (const [how, mode] of [["is cut again and again", "plain"], ["holds streams back", "held"], ["drips", "drip"]]) {
  test(`nothing is lost or repeated behind a proxy that ${how}`, async () => {
    const { url, number } = await control("proxy", { mode });
    const job = watched(client({ baseUrl: url }).submit("answer", question()));
    await begun(job);
    for (let turn = 0; turn < 4; turn++) {
      await ticks(job, range(turn * 5, turn * 5 + 5));
      await until(() => job.seen.ticks.length === turn * 5 + 5, `${turn} of ${job.seen.ticks}`);
      if (mode === "plain") await control("cut", { number });
    }
    await control("end", { id: job.id, result: "x" });
    assert.equal(await job.done, "x");
    assert.deepEqual(job.seen.ticks, range(0, 20));
  });
}

test("it outlives a server that is started anew", async () => {
  const job = watched(client().submit("answer", question()));
  await begun(job);
  await ticks(job, range(0, 5));
  await until(() => job.seen.ticks.length === 5);
  const starts = await control("starts");
  await control("restart");
  await until(() => control("starts").then((now) => now > starts, () => false), "another server");
  await ticks(job, range(5, 10));
  await control("end", { id: job.id });
  await job.done;
  assert.deepEqual(job.seen.ticks, range(0, 10));
});

test("nothing is asked while the browser is offline", async () => {
  const network = new Network();
  let asked = 0;
  const counted = (...request) => (asked++, fetch(...request));
  const job = watched(client({ network, fetch: counted }).submit("answer", question()));
  const words = [];
  job.on("offline", () => words.push("offline")).on("online", () => words.push("online"));
  await begun(job);
  await ticks(job, [1]);
  await until(() => job.seen.ticks.length === 1);
  network.goes(false);
  await until(() => words.length === 1);
  const before = asked;
  await ticks(job, [2, 3]);
  await new Promise((resolve) => setTimeout(resolve, 4 * TIMING.pauses.at(-1)));
  assert.equal(asked, before);
  assert.deepEqual(job.seen.ticks, [1]);
  network.goes(true);
  await until(() => job.seen.ticks.length === 3);
  assert.deepEqual(words, ["offline", "online"]);
  await control("end", { id: job.id });
  await job.done;
});

test("what ended without a result says how it stands", async () => {
  const job = watched(client().submit("answer", question()));
  let told;
  job.on("failed", (error) => (told = error));
  await begun(job);
  await control("end", { id: job.id, state: "failed" });
  await until(() => told);
  assert.ok(told instanceof AiflowError);
  assert.equal(told.submission.state, "failed");
});

test("what is refused says why", async () => {
  const storage = new Storage();
  const job = watched(client({ storage }).submit("answer", { wrong: 1 }));
  const error = await job.done.then(assert.fail, (found) => found);
  assert.equal(error.status, 422);
  assert.equal(error.problem.errors[0].pointer, "/input/wrong");
  assert.equal(storage.length, 0);
});

test("it can be cancelled", async () => {
  const job = watched(client().submit("answer", question()));
  await until(() => job.id);
  await job.cancel();
  await assert.rejects(job.done);
  assert.equal(job.state, "cancelled");
});

test("what another user left in the storage becomes a task of this one", async () => {
  const storage = new Storage();
  const input = question();
  const theirs = watched(client({ storage }).submit("answer", input));
  await until(() => theirs.id);
  theirs.close();
  const slot = storage.key(0);
  storage.setItem(slot, JSON.stringify({ id: "01900000-0000-7000-8000-000000000000" }));
  const mine = watched(client({ storage }).submit("answer", input));
  await until(() => mine.seen.states.length);
  assert.notEqual(mine.id, theirs.id);
});

test("the tail of a dead attempt does not count, and a new attempt is told", async () => {
  const job = watched(client().submit("answer", question()));
  await begun(job);
  await control("delta", { id: job.id, text: "old " });
  await until(() => job.seen.deltas.length === 1);
  await control("fail", { id: job.id });
  await begun(job);
  await control("delta", { id: job.id, text: "new " });
  await until(() => job.seen.deltas.length === 2);
  assert.deepEqual(job.seen.attempts, [2]);
  await control("end", { id: job.id });
  await job.done;
});

test("a token that has run out is asked for once more", async () => {
  const given = [];
  const asked = [];
  const refusing = (url, request) => {
    asked.push(request.headers.Authorization);
    return asked.length === 1 ? Promise.resolve(new Response("{}", { status: 401 })) : fetch(url, request);
  };
  const token = (renew) => (given.push(renew), renew ? "new" : "old");
  const job = watched(client({ token, fetch: refusing }).submit("answer", question()));
  await until(() => job.id);
  assert.deepEqual(given.slice(0, 2), [false, true]);
  assert.deepEqual(asked.slice(0, 2), ["Bearer old", "Bearer new"]);
});

test("who is signed out keeps the task and is told", async () => {
  const storage = new Storage();
  const input = question();
  const refused = () => Promise.resolve(new Response("{}", { status: 401 }));
  const job = watched(client({ storage, fetch: refused }).submit("answer", input));
  const error = await job.done.then(assert.fail, (found) => found);
  assert.equal(error.status, 401);
  const again = watched(client({ storage }).submit("answer", input));
  await until(() => again.id);
});
