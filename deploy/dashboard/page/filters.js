// The form above the rollout browser: what a person looks for, as words of an address and back.
// For: `rollouts.js`. Not for: finding anything.

import { h, replace } from "./dom.js";
import { whole } from "./format.js";

const TYPING_MS = 250;

export class Filters {
  /** `change` is called when a person has said something else. */
  constructor(change) {
    this.change = change;
    this.fate = "";
    this.count = h("span", { class: "count", role: "status" });
    const keep = () => { this.fate = this.fates.value; };
    this.fates = h("select", { name: "fate", onchange: keep }, h("option", { value: "" }, "any"));
    const kinds = ["", "train", "eval"].map((kind) => h("option", { value: kind }, kind || "any"));
    const clear = h("button", { type: "button", onclick: () => this.clear() }, "Clear");
    const search = { name: "text", type: "search", placeholder: "press / to search", autocomplete: "off" };
    const hands = { oninput: () => this.typed(), onsubmit: (event) => this.sent(event) };
    this.element = h("form", { class: "filters panel", role: "search", ...hands },
      h("label", { class: "grow" }, "Text, group or answer", h("input", search)),
      h("label", {}, "Fate", this.fates), h("label", {}, "Kind", h("select", { name: "kind" }, kinds)),
      range("reward", "Reward", "any"), range("length", "Tokens", "1"), range("version", "Version", "1"),
      clear, this.count);
  }

  /** What the form says, empty fields left out. */
  words() {
    return new URLSearchParams([...new FormData(this.element)].filter(([, value]) => value));
  }

  fill(words) {
    const named = [...this.element.elements].filter((input) => input.name && input !== this.fates);
    for (const input of named) input.value = words.get(input.name) ?? "";
    this.fate = words.get("fate") ?? "";
  }

  /** The fates there are, with their numbers; what is chosen stays chosen. */
  offer(fates) {
    const option = ([name, count]) => {
      const value = name.replace(/^retired /, "");
      const text = `${name.replaceAll("_", " ")} (${whole(count)})`;
      return h("option", { value, selected: value === this.fate }, text);
    };
    replace(this.fates, h("option", { value: "" }, "any"), Object.entries(fates).map(option));
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.change, TYPING_MS);
  }

  sent(event) {
    event.preventDefault();
    this.change();
  }

  clear() {
    this.element.reset();
    this.fate = "";
    this.change();
  }
}

function range(name, label, step) {
  const input = (end, word) => h("input", {
    name: `${name}_${end}`, type: "number", step, placeholder: word, "aria-label": `${label} ${word}` });
  return h("fieldset", {}, h("legend", {}, label), input("min", "from"), input("max", "to"));
}
