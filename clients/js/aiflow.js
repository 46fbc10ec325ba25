/**
 * Hand work to a pipeline, go away, come back: the client for pages and for Node.
 *
 * A submission's key is kept before anything is sent, and its id once it is known, in localStorage: a page that is
 * loaded anew goes on with the same task. Events come as a stream; where a proxy holds streams back, by short polls of
 * the same route. While the browser is offline nothing is asked.
 */

const FINISHED = ["succeeded", "failed", "cancelled"];

/** Answers after which the same request makes sense again. */
const AGAIN = [408, 425, 429, 500, 502, 503, 504];

/** Milliseconds. `first`: without a byte after which a stream counts as held back; the server speaks at once.
 * `silence`: after which one counts as lost; the server speaks at least every 15 s. `pauses`: between two tries. */
const TIMING = { first: 8_000, silence: 45_000, pauses: [500, 1_000, 2_000, 4_000, 8_000, 10_000] };

/** Seconds of one poll, and polls after which a stream is tried again: the network may be another by then. */
const POLL = 10;
const POLLS = 30;

/** The server refused, or the task ended without a result. */
export class AiflowError extends Error {
  constructor(message, { status, problem, submission } = {}) {
    super(message);
    this.name = "AiflowError";
    this.status = status;
    this.problem = problem;
    this.submission = submission;
  }
}

export class AiflowClient {
  #jobs = new Map();

  constructor({ baseUrl = "", token, storage, fetch, network = globalThis, timing = {} } = {}) {
    this.base = `${String(baseUrl).replace(/\/+$/, "")}/aiflow/api/v1`;
    this.token = token;
    this.fetch = fetch ?? ((...request) => globalThis.fetch(...request));
    this.network = network;
    this.timing = { ...TIMING, ...timing };
    this.storage = storage ?? kept();
  }

  /** Hand in a task, or go on with the one that was handed in with the same input and has not ended. */
  submit(pipeline, input = {}, { key, ...more } = {}) {
    const slot = `${this.#prefix}${digest(canonical([pipeline, key ?? input]))}`;
    const found = this.#read(slot);
    const begun = found ?? { key: key ?? newKey(), body: { ...more, pipeline, input } };
    return this.#job(slot, begun, { ...more, pipeline, input });
  }

  /** Follow a submission whose id is known. */
  follow(id, { after = "" } = {}) {
    return this.#job(`${this.#prefix}${id}`, { id, after });
  }

  /** Go on with all that was handed in here and has not ended. */
  resume() {
    const slots = Array.from({ length: this.storage.length }, (_, place) => this.storage.key(place));
    return slots.filter((slot) => slot?.startsWith(this.#prefix) && this.#read(slot))
      .map((slot) => this.#job(slot, this.#read(slot)));
  }

  get #prefix() {
    return `aiflow:${this.base}:`;
  }

  #job(slot, record, body) {
    let job = this.#jobs.get(slot);
    if (!job) {
      job = new Submission(this, record, body, {
        keep: (value) => this.storage.setItem(slot, JSON.stringify(value)),
        drop: () => this.storage.removeItem(slot),
        end: () => this.#jobs.delete(slot),
      });
      this.#jobs.set(slot, job);
    }
    return job;
  }

  #read(slot) {
    try {
      return JSON.parse(this.storage.getItem(slot));
    } catch {
      return null;
    }
  }
}

class Submission {
  id;
  state;
  progress;
  cursor = "";
  #client;
  #record;
  #body;
  #place;
  #heard = {};
  #outcome;
  #attempts = {};
  #stop = new AbortController();
  #settle;

  constructor(client, record, body, place) {
    this.#client = client;
    this.#record = record;
    this.#body = body;
    this.#place = place;
    this.id = record.id;
    this.cursor = record.after ?? "";
    this.done = new Promise((resolve, reject) => (this.#settle = { completed: resolve, failed: reject }));
    this.done.catch(() => {}); // who listens by on() need not take the promise
    // Later than the caller's on(): nothing is said before somebody can hear it.
    queueMicrotask(() => this.#run());
  }

  /** Be called with each of them; of an end that has come already at once. */
  on(name, call) {
    (this.#heard[name] ??= []).push(call);
    if (this.#outcome?.[0] === name) queueMicrotask(() => call(this.#outcome[1]));
    return this;
  }

  /** End the task. */
  async cancel() {
    return (await this.#ask(`/submissions/${this.id}:cancel`, { method: "POST" })).json();
  }

  /** Follow it no more; it goes on, and so does a page that is loaded anew. */
  close() {
    this.#stop.abort();
    this.#place.end();
  }

  async #run() {
    try {
      await this.#begin();
      await this.#follow();
      if (this.state !== "succeeded") {
        const submission = await (await this.#ask(`/submissions/${this.id}`)).json();
        throw new AiflowError(submission.error ?? this.state, { submission });
      }
      const answer = await this.#ask(`/submissions/${this.id}/result`);
      const json = answer.headers.get("Content-Type")?.includes("json");
      this.#end("completed", json ? await answer.json() : await answer.blob());
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#end("failed", error);
    }
  }

  async #begin() {
    if (!this.id) {
      const { key, body } = this.#record;
      this.#place.keep(this.#record); // before it is sent: a page that dies now finds its task by the key
      const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
      const answer = await this.#ask("/submissions", { method: "POST", headers, body: JSON.stringify(body) });
      const found = await answer.json();
      this.id = found.submission_id;
      this.#place.keep({ id: this.id });
      this.#moved(found.state);
    }
    this.#tell("submitted", this.id);
  }

  async #follow() {
    let tried = 0;
    let polls = 0;
    while (!FINISHED.includes(this.state)) {
      try {
        const came = await this.#stream(polls > 0);
        tried = came ? 0 : tried;
        polls = polls && (polls + 1) % POLLS;
        if (came && polls) continue;
      } catch (error) {
        if (this.#stop.signal.aborted) throw error;
        if (error.status === 404 && this.#body && this.#record.id) {
          // What was kept here is another user's, or gone: this is a new task then.
          this.#record = { key: newKey(), body: this.#body };
          this.id = undefined;
          await this.#begin();
        } else if (error.status && !AGAIN.includes(error.status)) {
          throw error;
        } else if (error.held) {
          polls = 1;
        }
      }
      await this.#pause(tried++);
    }
  }

  /** Read events until the connection ends; say whether any came. */
  async #stream(poll) {
    const { first, silence } = this.#client.timing;
    const cut = new AbortController();
    const end = () => cut.abort();
    let held = false;
    let came = false;
    let timer;
    const within = (time, early) => {
      clearTimeout(timer);
      timer = setTimeout(() => ((held = early), end()), time);
    };
    within(poll ? POLL * 1000 + silence : first, !poll);
    const unhear = this.#hear("offline", end);
    this.#stop.signal.addEventListener("abort", end);
    try {
      const headers = { Accept: "text/event-stream", ...(this.cursor && { "Last-Event-ID": this.cursor }) };
      const path = `/submissions/${this.id}/events${poll ? `?wait=${POLL}` : ""}`;
      const answer = await this.#fetch(path, { headers, cache: "no-store", signal: cut.signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", part; !(part = await reader.read()).done; ) {
        within(silence, false);
        const blocks = (rest + part.value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) came = this.#block(block) || came;
      }
    } catch (error) {
      error.held ??= held;
      if (!came) throw error;
    } finally {
      clearTimeout(timer);
      unhear();
      this.#stop.signal.removeEventListener("abort", end);
      end();
    }
    return came;
  }

  #block(block) {
    const fields = {};
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
    }
    if (!fields.data) return false;
    const value = JSON.parse(fields.data);
    if (fields.event === "state") {
      this.#moved(value.state);
    } else {
      this.cursor = fields.id ?? this.cursor;
      this.#event(value);
    }
    return true;
  }

  #event(event) {
    const task = `${event.task_id}[${event.map_index}]`;
    const last = this.#attempts[task] ?? 0;
    this.#tell("event", event);
    if (event.attempt < last) return; // the tail of an attempt that is dead
    this.#attempts[task] = event.attempt;
    if (last && event.attempt > last) this.#tell("attempt", event);
    const { task_id, map_index, attempt } = event;
    const value = { ...event.data, task_id, map_index, attempt };
    if (event.kind === "progress") this.#tell("progress", (this.progress = value));
    if (event.kind === "llm.delta") this.#tell("delta", value);
  }

  #moved(state) {
    if (state === this.state) return;
    this.state = state;
    this.#tell("state", state);
  }

  #end(name, value) {
    const mended = value?.status === 401 || value?.status === 403;
    if (!mended) this.#place.drop(); // else: signed in again, the page goes on
    this.#place.end();
    this.#outcome = [name, value];
    this.#settle[name](value);
    this.#tell(name, value);
  }

  #tell(name, value) {
    for (const call of this.#heard[name] ?? []) {
      try {
        call(value, this);
      } catch (error) {
        reportError(error); // the listener's own
      }
    }
  }

  /** Ask until there is an answer: every request of ours may be repeated. */
  async #ask(path, request) {
    for (let tried = 0; ; tried++) {
      try {
        return await this.#fetch(path, { signal: this.#stop.signal, ...request });
      } catch (error) {
        if (this.#stop.signal.aborted || (error.status && !AGAIN.includes(error.status))) throw error;
      }
      await this.#pause(tried);
    }
  }

  async #fetch(path, { headers, ...request } = {}, again = true) {
    await this.#online();
    const { token } = this.#client;
    const given = typeof token === "function" ? await token(!again) : token;
    const answer = await this.#client.fetch(this.#client.base + path, {
      ...request,
      credentials: "same-origin",
      headers: { ...headers, ...(given && { Authorization: `Bearer ${given}` }) },
    });
    if (answer.ok) return answer;
    if (answer.status === 401 && typeof token === "function" && again) {
      return this.#fetch(path, { headers, ...request }, false);
    }
    const problem = await answer.json().catch(() => ({}));
    const words = problem.detail ?? problem.title ?? answer.statusText;
    throw new AiflowError(`${answer.status}: ${words}`, { status: answer.status, problem });
  }

  async #online() {
    const { network } = this.#client;
    if (network.navigator?.onLine !== false) return;
    this.#tell("offline");
    await this.#back();
    this.#tell("online");
  }

  /** Wait before the next try, no longer than until the network is back. */
  #pause(tried) {
    const { pauses } = this.#client.timing;
    return this.#back(pauses[Math.min(tried, pauses.length - 1)] * (0.75 + Math.random() / 2));
  }

  async #back(time) {
    const { signal } = this.#stop;
    await new Promise((resolve) => {
      const timer = time && setTimeout(over, time);
      const unhear = this.#hear("online", over);
      signal.addEventListener("abort", over);
      function over() {
        clearTimeout(timer);
        unhear();
        signal.removeEventListener("abort", over);
        resolve();
      }
      if (signal.aborted) over();
    });
    signal.throwIfAborted();
  }

  #hear(name, call) {
    const { network } = this.#client;
    network.addEventListener?.(name, call);
    return () => network.removeEventListener?.(name, call);
  }
}

const reportError = globalThis.reportError ?? ((error) => console.error(error));

/** Give localStorage, or memory where there is none, or none is allowed. */
function kept() {
  try {
    globalThis.localStorage.getItem("aiflow");
    return globalThis.localStorage;
  } catch {
    const held = new Map();
    return {
      get length() {
        return held.size;
      },
      key: (place) => [...held.keys()][place] ?? null,
      getItem: (slot) => held.get(slot) ?? null,
      setItem: (slot, value) => void held.set(slot, value),
      removeItem: (slot) => void held.delete(slot),
    };
  }
}

/** A key of its own; a page that is not served over https has no crypto.randomUUID. */
function newKey() {
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return `js-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function canonical(value) {
  return JSON.stringify(value, (_, part) =>
    part && typeof part === "object" && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

/** Name a slot of the storage: 106 bits, and no secret. */
function digest(text) {
  return [0, 1]
    .map((seed) => {
      let a = 0xdeadbeef ^ seed;
      let b = 0x41c6ce57 ^ seed;
      for (const letter of text) {
        const code = letter.codePointAt(0);
        a = Math.imul(a ^ code, 2654435761);
        b = Math.imul(b ^ code, 1597334677);
      }
      a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
      b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
      return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
    })
    .join("-");
}
