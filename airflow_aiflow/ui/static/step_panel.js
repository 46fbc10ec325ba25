/** A step in the side panel: what it was given, what it gave, what it cost, and what is known of its record. */

import { routeOf, usePoll } from "./api.js";
import { Fragment, Link, address as full, h } from "./host.js";
import { count, money, plural } from "./money.js";
import { Badge, Pairs, Time } from "./parts.js";
import { taskAddress, timelineAddress } from "./places.js";
import { Answered } from "./states.js";
import { duration } from "./time.js";
import { kindWords } from "./timeline_words.js";
import { bytes, emptyWord, written } from "./values.js";

/** @typedef {import("./task_page.js").Address} Address */

/** @param {{address: Address, id: string, generation: string | number | null}} props */
export function StepFacts({ address, id, generation }) {
  const look = usePoll("/step", { ...address, key: id, generation }, { every: null });
  return h(Answered, { look, what: "this step", label: "Reading the step", children: (/** @type {any} */ step) => h(Facts, { step, address }) });
}

/** @param {{step: any, address: Address}} props */
function Facts({ step, address }) {
  return h(
    Fragment,
    {},
    h(Pairs, {
      pairs: [
        ["Kind", kindWords(step.kind)],
        step.path && step.path !== step.name ? ["Inside", h("span", { className: "aif-mono" }, step.path)] : null,
        ["Recorded by", h("span", {}, `attempt ${step.attempt} `, h(Log, { step, address }))],
        ["Began", h(Time, { at: step.started_at })],
        ["Took", duration(step.duration_ms)],
        ...paidPairs(step),
        step.provenance ? ["Reused from", h(Provenance, { provenance: step.provenance })] : null,
        step.changed ? ["Changed", changedWords(step.changed)] : null,
        ["Seal", h(Seal, { sealed: step.sealed })],
        step.conn_ids?.length ? ["Connections", step.conn_ids.join(", ")] : null,
        step.fingerprint ? ["Fingerprint", h("span", { className: "aif-mono", title: step.fingerprint }, step.fingerprint.slice(0, 16))] : null,
      ],
    }),
    step.arguments?.length ? h("section", { className: "aif-field" }, h("h3", {}, "Arguments"), h(Arguments, { all: step.arguments })) : null,
    h("section", { className: "aif-field" }, h("h3", {}, "Result"), h(Result, { result: step.result })),
  );
}

/** @param {{all: {name: string, value: unknown, cut: boolean, artifact: {sha256: string, size: number | null, href?: string | null} | null}[]}} props */
function Arguments({ all }) {
  return h(
    "dl",
    { className: "aif-arguments" },
    all.map((one, place) =>
      h(
        Fragment,
        { key: place },
        h("dt", { className: "aif-mono" }, one.name),
        h(
          "dd",
          {},
          one.artifact ? h(Artifact, { artifact: one.artifact }) : h(Given, { value: one.value }),
          one.cut ? h("p", { className: "aif-muted" }, "The beginning; the rest is not kept.") : null,
        ),
      ),
    ),
  );
}

/** @param {{value: unknown}} props */
function Given({ value }) {
  const empty = emptyWord(value);
  if (empty !== null) return h("span", { className: "aif-muted" }, empty);
  return h("pre", { className: "aif-code", tabIndex: 0 }, written(value));
}

/** @param {{step: any, address: Address}} props */
function Log({ step, address }) {
  return step.attempt_try ? h(Link, { to: `${taskAddress(address)}?try_number=${step.attempt_try}` }, "its log") : null;
}

/** @param {any} step @returns {([string, import("./host.js").Node] | null)[]} */
function paidPairs(step) {
  const model = [step.model, step.provider ? `(${step.provider})` : ""].filter(Boolean).join(" ");
  const tokens = step.tokens_in || step.tokens_out;
  const calls = step.calls > 1 ? ` for ${plural(step.calls, "call")}` : "";
  return [
    model ? ["Model", model] : null,
    tokens ? ["Tokens", `${count(step.tokens_in ?? 0)} in, ${count(step.tokens_out ?? 0)} out`] : null,
    model || tokens || step.cost ? ["Cost", `${money(step.cost)}${calls}`] : null,
  ];
}

/** @param {string[]} words */
function changedWords(words) {
  return words.length === 0 ? "nothing since the generation before" : `${words.join(", ")}, since the generation before`;
}

/** @param {{sealed: boolean | null}} props */
function Seal({ sealed }) {
  if (sealed === true) return h(Badge, { tone: "success" }, "intact");
  if (sealed === false) return h(Badge, { tone: "failed" }, "broken: the row was changed by hand");
  return h("span", { className: "aif-muted" }, "none");
}

/** @param {{provenance: any}} props */
function Provenance({ provenance }) {
  const from = provenance.execution ?? provenance;
  const name = from.run_id ?? "another run";
  const place = from.dag_id && from.run_id && from.task_id ? timelineAddress({ map_index: -1, ...from }) : null;
  const when = provenance.ran_at ?? null;
  return h(
    "span",
    {},
    place ? h(Link, { to: place }, name) : name,
    when ? h("span", {}, ", recorded ", h(Time, { at: when })) : null,
    provenance.cost ? `, ${money(provenance.cost)} saved` : "",
  );
}

/** @param {{result: any}} props */
function Result({ result }) {
  if (result === null || result === undefined) return h("p", { className: "aif-muted" }, "It is not shown here.");
  if (result.unreadable) return h("p", { className: "aif-refused" }, String(result.unreadable));
  if (result.artifact && (result.value === null || result.value === undefined)) return h(Artifact, { artifact: result.artifact });
  return h(
    Fragment,
    {},
    result.artifact ? h(Artifact, { artifact: result.artifact }) : null,
    h("pre", { className: "aif-code", tabIndex: 0 }, written(result.value)),
    result.cut ? h("p", { className: "aif-muted" }, "Cut: the whole is longer.") : null,
  );
}

/** @param {{artifact: {sha256: string, size: number | null, name?: string | null, media_type?: string | null, href?: string | null}}} props */
function Artifact({ artifact }) {
  const size = artifact.size === null || artifact.size === undefined ? "A stored value" : bytes(artifact.size);
  const kind = artifact.media_type && !/octet-stream|aiflow/.test(artifact.media_type) ? ` of ${artifact.media_type}` : "";
  return h(
    "p",
    {},
    `${size}${kind}. `,
    artifact.href ? h("a", { href: hrefOf(artifact.href), download: "" }, "Download") : null,
    h("br"),
    h("span", { className: "aif-mono aif-muted" }, artifact.sha256),
  );
}

/** @param {string} href from the API: absolute, or relative to our routes */
function hrefOf(href) {
  if (/^https?:/.test(href)) return href;
  return full(href.replace(/^\//, "").startsWith("aiflow/") ? href : routeOf(href));
}
