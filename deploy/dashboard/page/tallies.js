// What the whole run adds up to: staleness of what was trained, and the books. For: the overview. Not for: curves.

import { h, replace } from "./dom.js";
import { percent, whole } from "./format.js";

const FATES = ["admitted", "trained", "retired", "buried", "open"];

/** Bars: versions between sampling and training → groups; as many as the run allows, and any beyond. */
export function drawStaleness(element, counts, allowed) {
  const all = Object.values(counts).reduce((a, b) => a + b, 0);
  if (!all) return replace(element, h("p", { class: "nothing" }, "nothing trained yet"));
  const largest = Math.max(allowed, ...Object.keys(counts).map(Number));
  const bars = Array.from({ length: largest + 1 }, (_, value) => bar(value, counts[value] ?? 0, all));
  return replace(element, bars, h("p", { class: "note" }, "versions between sampling and training · groups"));
}

const bar = (value, count, all) => h("div", { class: "bar" }, h("span", {}, String(value)),
  h("i", { style: { width: `${(100 * count) / all}%` } }), h("b", {}, percent(count / all)), h("em", {}, whole(count)));

/** The law, for each kind of group, and what was retired or buried for which reason. */
export function drawBooks(element, books, reasons) {
  const told = Object.entries(reasons).map(([name, count]) => `${inWords(name)} ${whole(count)}`);
  const law = h("th", { title: "admitted = trained + retired + buried + open" }, "=");
  const head = h("tr", {}, h("th", {}), FATES.map((name) => h("th", { scope: "col" }, name)), law);
  const rows = ["train", "eval"].map((kind) => bookRow(kind, books[kind]));
  replace(element, h("table", { class: "numbers" }, h("thead", {}, head), h("tbody", {}, rows)),
    h("p", { class: "note" }, told.length ? told.join(" · ") : "nothing retired or buried"));
}

function bookRow(kind, books) {
  const holds = books.admitted === books.trained + books.retired + books.buried + books.open;
  return h("tr", {}, h("th", { scope: "row" }, kind), FATES.map((name) => h("td", {}, whole(books[name]))),
    h("td", { class: holds ? "good" : "bad" }, holds ? "✓" : "≠"));
}

const inWords = (reason) => reason.replace(".", ": ").replaceAll("_", " ");
