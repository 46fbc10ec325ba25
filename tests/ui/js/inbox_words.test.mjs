import assert from "node:assert/strict";
import { test } from "node:test";

import {
  answered, commonDeeds, deeds, groups, matching, ownerWords, pageTitle, readableRequest, taskName, title,
} from "../../../airflow_aiflow/ui/static/inbox_words.js";

const EXECUTION = { dag_id: "invoices", run_id: "scheduled__2026-11-29T18:00:00+00:00", task_id: "book", map_index: 3 };
const QUESTION = { subject: "May “mail” be sent?", body: "", options: ["Approve", "Reject"], assigned_users: [], time_left: 60 };

const doubt = (more = {}) => ({
  number: 1842, what: "doubt", effect: { name: "pay", key: "billing/4711", state: "in_doubt", scope: "dag" },
  execution: EXECUTION, request: {}, since: "2026-11-29T18:40:03+00:00", attempt: 2, owner: "verified dead", link: null,
  question: { ...QUESTION, subject: "Did pay happen?", options: [] }, may_answer: true, ...more,
});
const ask = (more = {}) => doubt({ number: 7, what: "ask", effect: null, question: QUESTION, ...more });

test("one line asks", () => {
  assert.equal(title(doubt()), "Did “pay” happen?");
  assert.equal(title(ask()), "May “mail” be sent?");
  assert.equal(title(ask({ question: null })), "#7");
});

test("a task instance is named", () => {
  assert.equal(taskName(EXECUTION), "book[3]");
  assert.equal(taskName({ ...EXECUTION, map_index: -1 }), "book");
});

test("a doubt takes three words while a task waits, and two where none does", () => {
  const words = (entry) => deeds(entry).map((deed) => deed.word);
  assert.deepEqual(words(doubt()), ["happened", "did_not_happen", "fail"]);
  assert.deepEqual(words(doubt({ question: null })), ["happened", "did_not_happen"]);
  assert.deepEqual(words(doubt({ question: { ...QUESTION, time_left: 0 } })), ["happened", "did_not_happen"]);
  assert.deepEqual(words(doubt({ question: { ...QUESTION, time_left: null } })), ["happened", "did_not_happen", "fail"]);
  assert.deepEqual(deeds(doubt()).map((deed) => deed.result), [true, false, false]);
});

test("a question takes its own options", () => {
  assert.deepEqual(deeds(ask()).map(({ word, tone }) => [word, tone]), [["Approve", "yes"], ["Reject", "stop"]]);
});

test("several are answered at once by what each of them takes", () => {
  const words = (entries) => commonDeeds(entries).map((deed) => deed.word);
  assert.deepEqual(words([doubt(), doubt({ question: null })]), ["happened", "did_not_happen"]);
  assert.deepEqual(words([doubt(), ask()]), []);
  assert.deepEqual(words([ask(), ask({ number: 8 })]), ["Approve", "Reject"]);
  assert.deepEqual(words([]), []);
});

test("verified dead and presumed gone are told apart", () => {
  assert.equal(ownerWords("verified dead").tone, "sure");
  assert.equal(ownerWords("presumed gone").tone, "unsure");
  assert.equal(ownerWords(null), null);
});

test("what is answered alike stands together, the oldest first", () => {
  const entries = [
    doubt({ number: 3, since: "2026-11-29T18:42:00+00:00" }),
    ask({ number: 2, since: "2026-11-29T18:41:00+00:00" }),
    doubt({ number: 1, since: "2026-11-29T18:40:00+00:00" }),
    doubt({ number: 4, execution: { ...EXECUTION, dag_id: "other" }, since: "2026-11-29T18:39:00+00:00" }),
  ];
  assert.deepEqual(groups(entries).map((group) => group.entries.map((entry) => entry.number)), [[4], [1, 3], [2]]);
});

test("the filter takes words in any order", () => {
  const entries = [doubt(), ask()];
  assert.deepEqual(matching(entries, "4711 PAY").map((entry) => entry.number), [1842]);
  assert.deepEqual(matching(entries, "#7").map((entry) => entry.number), [7]);
  assert.equal(matching(entries, "").length, 2);
  assert.equal(matching(entries, "nothing like it").length, 0);
});

test("a request is laid out for reading", () => {
  assert.deepEqual(readableRequest({ function: "pay", arguments: { number: "4711", cents: 11800, to: ["a"] } }), {
    call: "pay", rows: [["number", "4711"], ["cents", "11800"], ["to", '[\n  "a"\n]']],
  });
  assert.deepEqual(readableRequest("(not readable here)"), { call: null, rows: [["", "(not readable here)"]] });
  assert.equal(readableRequest({ function: "pay.py.<locals>.charge", arguments: {} }).call, "charge");
  assert.equal(readableRequest(null), null);
});

test("the count stands in the title once", () => {
  assert.equal(pageTitle("Airflow", 3), "(3) Airflow");
  assert.equal(pageTitle("(3) Airflow", 2), "(2) Airflow");
  assert.equal(pageTitle("(12) Airflow", 0), "Airflow");
  assert.equal(pageTitle("Airflow", null), "Airflow");
});

test("what became of an answer is said", () => {
  const [happened, again, fail] = deeds(doubt());
  assert.match(answered(happened, doubt()), /#1842: you said that it happened/);
  assert.match(answered(again, doubt()), /run when the task goes on/);
  assert.match(answered(again, doubt(), "the task goes on within some seconds"), /Now: the task goes on within some seconds\.$/);
  assert.equal(answered(deeds(ask())[0], ask(), "it goes on"), "#7: you answered “Approve”. Now: it goes on.");
  assert.match(answered(again, doubt({ question: null })), /clear the task/);
  assert.match(answered(fail, doubt()), /doubt stays open/);
});
