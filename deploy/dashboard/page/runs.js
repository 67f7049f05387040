// All runs, the newest first. For: the page at `/`. Not for: a run's own page.

import { h, panel, replace, s } from "./dom.js";
import { clock, moment, number, whole } from "./format.js";
import { extent, linear } from "./scale.js";
import { answer } from "./source.js";

const AGAIN_MS = 3000;

export class Runs {
  constructor() {
    this.body = h("tbody", {});
    this.search = h("input", {
      type: "search",
      placeholder: "press / to search",
      "aria-label": "search runs",
      oninput: () => this.draw(),
    });
    this.nothing = h("p", { class: "nothing" }, "looking …");
    const names = ["run", "state", "version", "reward", "accuracy", "curve", "time", "begun"];
    const numbers = ["version", "reward", "accuracy", "time"];
    this.table = h(
      "table",
      { class: "list", hidden: true },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          names.map((name) => h("th", { scope: "col", class: numbers.includes(name) ? "number" : null }, name)),
        ),
      ),
      this.body,
    );
    this.element = panel("Runs", this.search, h("div", { class: "scroll" }, this.table), this.nothing);
    this.rows = null;
    this.look();
  }

  async look() {
    const rows = await answer("/api/runs").catch(() => this.rows);
    if (JSON.stringify(rows) !== JSON.stringify(this.rows)) {
      this.rows = rows;
      this.draw();
    }
    setTimeout(() => this.look(), document.hidden ? AGAIN_MS * 5 : AGAIN_MS);
  }

  draw() {
    const rows = (this.rows ?? []).filter((row) => row.run.toLowerCase().includes(this.search.value.toLowerCase()));
    const focused = document.activeElement?.closest?.("tr")?.dataset.run;
    replace(this.body, rows.map(runRow));
    this.body.querySelector(`tr[data-run="${CSS.escape(focused ?? "")}"] a`)?.focus();
    this.table.hidden = !rows.length;
    this.nothing.hidden = rows.length > 0;
    replace(
      this.nothing,
      this.rows?.length
        ? "no run of that name"
        : ["no run here yet; start one with ", h("code", {}, "tidemill run addition")],
    );
  }
}

function runRow(row) {
  const accuracy = row.accuracy ? `${number(row.accuracy[0])} → ${number(row.accuracy[1])}` : "–";
  const state =
    row.finished && row.state === "finished" ? row.finished : ({ empty: "has not begun" }[row.state] ?? "");
  return h(
    "tr",
    { data: { run: row.run } },
    h("td", {}, h("a", { href: `/runs/${encodeURIComponent(row.run)}` }, row.run)),
    h("td", {}, h("span", { class: `state ${row.state}`, title: state }, row.state)),
    h("td", { class: "number" }, `${row.version < 0 ? "–" : whole(row.version)} / ${whole(row.steps)}`),
    h("td", { class: "number" }, number(row.reward)),
    h("td", { class: "number" }, accuracy),
    h("td", {}, spark(row.curve)),
    h("td", { class: "number" }, clock(row.elapsed_s)),
    h("td", { class: "when" }, moment(row.begun)),
  );
}

/** A curve as small as a word. */
function spark(values) {
  if (values.length < 2) return "";
  const [x, y] = [linear([0, values.length - 1], [1, 99]), linear(extent(values), [20, 2])];
  return s(
    "svg",
    { class: "spark", width: 100, height: 22, "aria-hidden": "true" },
    s("path", {
      d: values.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`).join(""),
    }),
  );
}
