// The rollout browser: finished groups found by what a person asks, a page at a time, one of them opened beside.
// For: the second tab. Not for: how an opened group looks (`group.js`).

import { h, replace, say } from "./dom.js";
import { moment, number, whole } from "./format.js";
import { groupView } from "./group.js";

const FIELDS = ["text", "kind", "fate", "reward_min", "reward_max", "length_min", "length_max", "version_min", "version_max", "sort", "page"];
const TYPING_MS = 250;
const NEWER_MS = 5000;
const NUMBERS = ["reward", "tokens", "versions"];
const COLUMNS = [
  ["id", "group"], [null, "prompt"], [null, "first answer"], ["reward", "reward"], ["length", "tokens"],
  ["newest", "versions"], ["trained", "end"], ["at", "closed"],
];

export class Rollouts {
  constructor(source) {
    Object.assign(this, { source, words: new URLSearchParams(), open: null, rows: [], asked: 0, chosen: -1, fate: "" });
    this.count = h("span", { class: "count", role: "status" });
    this.form = this.makeForm();
    this.body = h("tbody", {});
    this.head = h("tr", {});
    this.pager = h("div", { class: "pager" });
    this.side = h("aside", { class: "side", "aria-label": "opened group", tabindex: -1 });
    const list = h("table", { class: "list" }, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "rollouts" }, this.form, h("div", { class: "beside" },
      h("div", { class: "panel" }, h("div", { class: "scroll" }, list), this.pager), this.side));
  }

  makeForm() {
    const wait = (act) => { clearTimeout(this.timer); this.timer = setTimeout(act, TYPING_MS); };
    const range = (name, label, step) => h("fieldset", {}, h("legend", {}, label),
      h("input", { name: `${name}_min`, type: "number", step, placeholder: "from", "aria-label": `${label} from` }),
      h("input", { name: `${name}_max`, type: "number", step, placeholder: "to", "aria-label": `${label} to` }));
    this.fates = h("select", { name: "fate", onchange: () => { this.fate = this.fates.value; } }, h("option", { value: "" }, "any"));
    return h("form", { class: "filters panel", role: "search", oninput: () => wait(() => this.filter()), onsubmit: (event) => { event.preventDefault(); this.filter(); } },
      h("label", { class: "grow" }, "Text, group or answer", h("input", { name: "text", type: "search", placeholder: "press / to search", autocomplete: "off" })),
      h("label", {}, "Fate", this.fates),
      h("label", {}, "Kind", h("select", { name: "kind" }, ["", "train", "eval"].map((kind) => h("option", { value: kind }, kind || "any")))),
      range("reward", "Reward", "any"), range("length", "Tokens", "1"), range("version", "Version", "1"),
      h("button", { type: "button", onclick: () => { this.form.reset(); this.fate = ""; this.filter(); } }, "Clear"), this.count);
  }

  /** From the address: `#rollouts?fate=stale&group=…`. */
  async restore(words) {
    const open = words.get("group");
    words.delete("group");
    for (const input of this.form.elements) if (input.name && input !== this.fates) input.value = words.get(input.name) ?? "";
    [this.words, this.fate] = [words, words.get("fate") ?? ""];
    await this.load();
    if (open && open !== this.open) await this.show(open);
    else if (!open) this.close();
  }

  filter() {
    const sort = this.words.get("sort");
    this.words = new URLSearchParams([...new FormData(this.form)].filter(([, value]) => value));
    if (sort) this.words.set("sort", sort);
    this.remember();
    this.load();
  }

  remember() {
    const words = new URLSearchParams([...this.words].filter(([name]) => FIELDS.includes(name)));
    if (this.open) words.set("group", this.open);
    history.replaceState(null, "", `#rollouts${words.size ? `?${words}` : ""}`);
  }

  /** More groups have ended: the first page shows them, unless somebody reads in it. */
  heard({ now }) {
    const ended = ["train", "eval"].map((kind) => now.books[kind]).reduce((sum, one) => sum + one.admitted - one.open, 0);
    const idle = !this.open && !this.words.get("page") && !this.element.contains(document.activeElement);
    if (ended === this.ended || !idle || Date.now() - this.loaded < NEWER_MS) return;
    this.ended = ended;
    this.load();
  }

  async load() {
    this.loaded = Date.now();
    const turn = (this.asked += 1);
    const found = await this.source.groups(this.words.toString()).catch((error) => ({ error: error.message, rows: [], total: 0, fates: {} }));
    if (turn !== this.asked) return;
    this.rows = found.rows;
    this.draw(found);
    if (found.reading !== undefined) setTimeout(() => turn === this.asked && this.load(), 700);
  }

  draw(found) {
    const asked = this.words.get("sort") ?? "-at";
    replace(this.head, COLUMNS.map(([sort, name]) => h("th", { scope: "col", class: NUMBERS.includes(name) ? "number" : null, "aria-sort": order(asked, sort) },
      sort ? h("button", { type: "button", onclick: () => this.sort(sort) }, name, arrow(asked, sort)) : name)));
    replace(this.body, this.rows.map((row, index) => this.row(row, index)));
    if (!this.rows.length) this.body.append(h("tr", {}, h("td", { colspan: COLUMNS.length, class: "nothing" }, nothing(found))));
    const fates = Object.entries(found.fates ?? {});
    replace(this.fates, h("option", { value: "" }, "any"), fates.map(([name, count]) => {
      const value = name.replace(/^retired /, "");
      return h("option", { value, selected: value === this.fate }, `${name.replaceAll("_", " ")} (${whole(count)})`);
    }));
    say(this.count, found.reading !== undefined ? `reading the archive${found.reading ? `, ${Math.round(found.reading * 100)} %` : " …"}` : counted(found, this.source.isFrozen));
    this.drawPager(found);
  }

  row(row, index) {
    const versions = row.newest === null ? "" : row.oldest === row.newest ? `${row.newest}` : `${row.oldest}–${row.newest}`;
    const cells = [row.id, row.prompt.slice(-60), row.answer, row.reward === null ? "" : number(row.reward), number(row.length, 1), versions];
    return h("tr", { tabindex: 0, data: { group: row.id }, "aria-selected": String(row.id === this.open), onclick: () => this.choose(index) },
      cells.map((cell, column) => h("td", column > 2 ? { class: "number" } : { title: cell }, cell)),
      h("td", {}, h("span", { class: `fate ${row.fate}` }, end(row))), h("td", { class: "when" }, moment(row.at)));
  }

  drawPager(found) {
    const pages = Math.max(1, Math.ceil(found.total / (found.page_size || 1)));
    const go = (page) => { this.words.set("page", page); this.remember(); this.load(); };
    const button = (text, page) => h("button", { type: "button", disabled: page < 0 || page >= pages, onclick: () => go(page) }, text);
    replace(this.pager, button("« first", found.page > 0 ? 0 : -1), button("‹ newer", found.page - 1),
      h("span", {}, `page ${whole((found.page ?? 0) + 1)} of ${whole(pages)}`), button("older ›", found.page + 1));
    this.pager.hidden = pages < 2;
  }

  sort(name) {
    this.words.set("sort", this.words.get("sort") === `-${name}` || (!this.words.get("sort") && name === "at") ? name : `-${name}`);
    this.words.delete("page");
    this.remember();
    this.load();
  }

  async choose(index) {
    this.chosen = index;
    this.body.children[index]?.focus();
    await this.show(this.rows[index].id);
  }

  async show(id) {
    this.open = id;
    this.remember();
    for (const row of this.body.children) row.setAttribute("aria-selected", String(row.dataset.group === id));
    try {
      const group = await this.source.group(id);
      if (this.open === id) replace(this.side, groupView(group, () => this.close()));
    } catch (error) {
      replace(this.side, h("div", { class: "panel nothing" }, error.message));
    }
    this.element.classList.add("opened");
  }

  close() {
    this.open = null;
    this.element.classList.remove("opened");
    replace(this.side);
    for (const row of this.body.children) row.setAttribute("aria-selected", "false");
    this.remember();
  }

  /** Escape closes; arrows, j and k go through the list and take an opened group along. */
  key(event) {
    if (event.key === "Escape" && this.open) {
      const chosen = this.body.children[this.chosen];
      this.close();
      chosen?.focus();
      return;
    }
    if (event.target.closest?.("input, select, textarea")) return;
    const here = [...this.body.children].indexOf(document.activeElement?.closest("tr"));
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };
    if (event.key === "Enter" && here >= 0) this.choose(here);
    if (!(event.key in steps) || !this.rows.length || event.target.closest?.(".side")) return;
    event.preventDefault();
    const next = Math.min(this.rows.length - 1, Math.max(0, here + steps[event.key]));
    if (this.open) this.choose(next);
    else this.body.children[next].focus();
  }
}

const arrow = (asked, sort) => (asked === sort ? " ▲" : asked === `-${sort}` ? " ▼" : "");

const order = (asked, sort) => (asked === sort ? "ascending" : asked === `-${sort}` ? "descending" : null);

const end = (row) => (row.fate === "trained" ? `into v${row.trained}` : row.fate === "buried" ? "buried" : row.reason.replaceAll("_", " "));

function counted(found, isFrozen) {
  const groups = found.total === 1 ? "1 group" : `${whole(found.total)} groups`;
  return isFrozen ? `${groups} of ${whole(found.all)} are in this report` : groups;
}

function nothing(found) {
  if (found.error) return found.error;
  return found.reading !== undefined ? "the archive is being read for the first time" : "no finished group fits";
}
