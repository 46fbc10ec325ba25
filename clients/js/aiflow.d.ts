/** A token of Airflow's, or what gives one; `renew` is true after one that was refused. */
export type Token = string | ((renew: boolean) => string | Promise<string>);

/** What the client needs of localStorage. */
export interface Kept {
  readonly length: number;
  key(place: number): string | null;
  getItem(slot: string): string | null;
  setItem(slot: string, value: string): void;
  removeItem(slot: string): void;
}

/** What the client needs of a window: whether it is online, and to be told. */
export interface Network {
  readonly navigator?: { readonly onLine?: boolean };
  addEventListener?(name: "online" | "offline", call: () => void): void;
  removeEventListener?(name: "online" | "offline", call: () => void): void;
}

/** Milliseconds. */
export interface Timing {
  /** Without a byte after which a stream counts as held back by a proxy. */
  first: number;
  /** Without a byte after which a stream counts as lost. */
  silence: number;
  /** Between two tries; the last one stays. */
  pauses: readonly number[];
}

export interface ClientOptions {
  /** Address of Airflow, a path included; empty: where the page comes from. */
  baseUrl?: string | URL;
  /** Left out: the cookie of Airflow's own pages. */
  token?: Token;
  storage?: Kept;
  fetch?: typeof fetch;
  network?: Network;
  timing?: Partial<Timing>;
}

export interface SubmitOptions {
  /** Idempotency key; left out: one is made and kept, so that the same input finds its task until that has ended. */
  key?: string;
  labels?: Record<string, string>;
  priority?: number;
  /** ISO 8601 with an offset. */
  deadline?: string;
}

export type State = "queued" | "running" | "paused" | "succeeded" | "failed" | "cancelled";

export interface Place {
  task_id: string;
  /** -1 where the task is not mapped. */
  map_index: number;
  /** A higher number than before: what an earlier attempt of the task wrote last does not count. */
  attempt: number;
}

export interface AiflowEvent<T = unknown> extends Place {
  submission_id: string;
  kind: string;
  at: string;
  data: T;
}

export interface Progress extends Place {
  done: number;
  total: number | null;
  message: string;
}

/** A piece of a model's answer; `at` 0: it begins, or begins anew. */
export interface Delta extends Place {
  name: string;
  at: number;
  text: string;
}

export interface Heard<R> {
  submitted: string;
  state: State;
  progress: Progress;
  delta: Delta;
  /** A later attempt of a task is at work. */
  attempt: AiflowEvent;
  /** Each event as it came, those of dead attempts included. */
  event: AiflowEvent;
  completed: R;
  failed: AiflowError;
  offline: undefined;
  online: undefined;
}

export declare class AiflowError extends Error {
  readonly name: "AiflowError";
  /** HTTP status of a refusal. */
  readonly status?: number;
  /** The problem document (RFC 9457) of a refusal. */
  readonly problem?: { title?: string; detail?: string; errors?: { pointer?: string; detail?: string }[] };
  /** How it stands, of a task that ended without a result. */
  readonly submission?: Record<string, unknown>;
}

export interface Submission<R = unknown> {
  readonly id: string | undefined;
  readonly state: State | undefined;
  readonly progress: Progress | undefined;
  /** Of the last event that was seen. */
  readonly cursor: string;
  /** The result; rejected as `failed` is told. */
  readonly done: Promise<R>;
  on<K extends keyof Heard<R>>(name: K, call: (value: Heard<R>[K], submission: Submission<R>) => void): this;
  cancel(): Promise<Record<string, unknown>>;
  /** Follow it no more; it goes on. */
  close(): void;
}

export declare class AiflowClient {
  constructor(options?: ClientOptions);
  /** Hand in a task, or go on with the one of the same input that has not ended. */
  submit<R = unknown>(pipeline: string, input?: Record<string, unknown>, options?: SubmitOptions): Submission<R>;
  follow<R = unknown>(id: string, options?: { after?: string }): Submission<R>;
  /** Go on with all that was handed in here and has not ended. */
  resume(): Submission[];
}
