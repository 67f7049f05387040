// One page of finished groups as a table, with its order and its pager. For: `rollouts.js`. Not for: asking for them.

import { h, replace } from "./dom.js";
import { moment, number, whole } from "./format.js";

const NUMBERS = ["reward", "tokens", "versions"];
/** [what it can be sorted by, heading] */
const COLUMNS = [["id", "group"], [null, "prompt"], [null, "first answer"], ["reward", "reward"], ["length", "tokens"],
  ["newest", "versions"], ["trained", "end"], ["at", "closed"]];

export class RolloutList {
  /** `choose(index)`, `sort(name)` and `turn(page)` are called when a person does. */
  constructor(hands) {
    this.hands = hands;
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.pager = h("div", { class: "pager" });
    const table = h("table", { class: "list" }, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "panel" }, h("div", { class: "scroll" }, table), this.pager);
  }

  draw(found, asked, open) {
    replace(this.head, COLUMNS.map((column) => this.heading(column, asked)));
    replace(this.body, found.rows.map((row, index) => this.row(row, index)));
    if (!found.rows.length) {
      this.body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "nothing" }, nothing(found))));
    }
    this.mark(open);
    this.drawPager(found);
  }

  heading([sort, name], asked) {
    const act = () => this.hands.sort(sort);
    const button = () => h("button", { type: "button", onclick: act }, name, arrow(asked, sort));
    const css = NUMBERS.includes(name) ? "number" : null;
    return h("th", { scope: "col", class: css, "aria-sort": order(asked, sort) }, sort ? button() : name);
  }

  row(row, index) {
    const cells = [row.id, row.prompt.slice(-60), row.answer].map((text) => h("td", { title: text }, text));
    const numbers = [row.reward === null ? "" : number(row.reward), number(row.length, 1), versions(row)];
    const at = { tabindex: 0, data: { group: row.id }, onclick: () => this.hands.choose(index) };
    return h("tr", at, cells, numbers.map((text) => h("td", { class: "number" }, text)),
      h("td", {}, h("span", { class: `fate ${row.fate}` }, end(row))), h("td", { class: "when" }, moment(row.at)));
  }

  drawPager({ page, total, page_size: size }) {
    const pages = Math.max(1, Math.ceil(total / (size || 1)));
    const button = (text, to) =>
      h("button", { type: "button", disabled: to < 0 || to >= pages, onclick: () => this.hands.turn(to) }, text);
    replace(this.pager, button("« first", page > 0 ? 0 : -1), button("‹ back", page - 1),
      h("span", {}, `page ${whole((page ?? 0) + 1)} of ${whole(pages)}`), button("on ›", page + 1));
    this.pager.hidden = pages < 2;
  }

  /** The opened group looks so. */
  mark(open) {
    for (const row of this.body.children) row.setAttribute("aria-selected", String(row.dataset.group === open));
  }

  get focused() {
    return [...this.body.children].indexOf(document.activeElement?.closest("tr"));
  }

  focus(index) {
    this.body.children[index]?.focus();
  }
}

const versions = (row) => {
  if (row.newest === null) return "";
  return row.oldest === row.newest ? `${row.newest}` : `${row.oldest}–${row.newest}`;
};

const arrow = (asked, sort) => (asked === sort ? " ▲" : asked === `-${sort}` ? " ▼" : "");

const order = (asked, sort) => (asked === sort ? "ascending" : asked === `-${sort}` ? "descending" : null);

function end(row) {
  if (row.fate === "trained") return `into v${row.trained}`;
  return row.fate === "buried" ? "buried" : row.reason.replaceAll("_", " ");
}

function nothing(found) {
  if (found.error) return found.error;
  return found.reading === undefined ? "no finished group fits" : "the archive is being read for the first time";
}
