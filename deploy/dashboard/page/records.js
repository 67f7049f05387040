// Single things as tables: dead letters, processes, moves, settings. For: the third tab. Not for: finished groups.

import { h, panel, replace } from "./dom.js";
import { clock, number } from "./format.js";

export class Records {
  constructor(facts) {
    this.facts = facts;
    this.dead = h("div", {});
    this.moves = h("div", {});
    this.processes = h("div", {});
    this.settings = h("div", { class: "settings" });
    this.element = h(
      "div",
      { class: "records" },
      panel("Dead letters", h("span", { class: "note" }, "tidemill inspect dead"), this.dead),
      panel("Processes", h("span", { class: "note" }, "by their last report"), this.processes),
      panel("Moves", h("span", { class: "note" }, "tidemill inspect decisions"), this.moves),
      panel("Settings", null, this.settings),
    );
  }

  draw() {
    const { now, dead, settings } = this.facts;
    if (!now) return;
    replace(this.dead, table(["group", "reason", "stage", "attempt"], dead, "no group was buried"));
    const processes = Object.entries(now.processes).map(([name, facts]) => ({
      name,
      ...facts,
      version: facts.version < 0 ? "" : facts.version,
      "heard of": `${number(facts.age_s, 1)} s ago`,
    }));
    replace(
      this.processes,
      table(
        ["name", "role", "stage", "version", "pid", "heard of"],
        processes,
        now.live ? "no process has reported yet" : "no process lives",
      ),
    );
    const moves = this.facts.moves.reverse().map((move) => ({ at: clock(move.x), move: move.slots, why: move.why }));
    replace(
      this.moves,
      table(["at", "move", "why"], moves, settings.slots ? "no slot was moved" : "this run has no slots"),
    );
    if (!this.settings.children.length && settings.all)
      replace(this.settings, Object.entries(settings.all).map(section));
  }
}

export function table(names, rows, nothing) {
  if (!rows.length) return h("p", { class: "nothing" }, nothing);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          names.map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            names.map((name) => h("td", {}, String(row[name] ?? ""))),
          ),
        ),
      ),
    ),
  );
}

const section = ([name, values]) =>
  h(
    "details",
    {},
    h("summary", {}, `[${name}]`),
    h(
      "dl",
      {},
      Object.entries(values).flatMap(([key, value]) => [
        h("dt", {}, key),
        h("dd", {}, typeof value === "string" ? value : JSON.stringify(value)),
      ]),
    ),
  );
