// The rollout browser: finished groups found by what a person asks, a page at a time, one of them opened beside.
// For: the second tab. Not for: how the form, the list or an opened group looks (`filters`, `rollout_list`, `group`).

import { h, replace, say } from "./dom.js";
import { Filters } from "./filters.js";
import { whole } from "./format.js";
import { freshShading, groupView } from "./group.js";
import { RolloutList } from "./rollout_list.js";

const NEWER_MS = 5000;
const READING_MS = 700;
const STEPS = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 };

export class Rollouts {
  constructor(source) {
    Object.assign(this, { source, words: new URLSearchParams(), open: null, rows: [], turn: 0, chosen: -1 });
    this.shading = freshShading();
    this.filters = new Filters(() => this.filter());
    this.list = new RolloutList({
      choose: (index) => this.choose(index), sort: (name) => this.sort(name), turn: (page) => this.ask("page", page) });
    this.side = h("aside", { class: "side", "aria-label": "opened group", tabindex: -1 });
    const beside = h("div", { class: "beside" }, this.list.element, this.side);
    this.element = h("div", { class: "rollouts" }, this.filters.element, beside);
  }

  /** From the address: `#rollouts?fate=stale&group=…`. */
  async restore(words) {
    const open = words.get("group");
    words.delete("group");
    this.words = words;
    this.filters.fill(words);
    await this.load();
    if (open && open !== this.open) await this.show(open);
    else if (!open) this.close();
  }

  filter() {
    const sort = this.words.get("sort");
    this.words = this.filters.words();
    this.ask("sort", sort);
  }

  sort(name) {
    const asked = this.words.get("sort") ?? "-at";
    this.words.delete("page");
    this.ask("sort", asked === `-${name}` ? name : `-${name}`);
  }

  ask(name, value) {
    if (value !== null) this.words.set(name, value);
    this.remember();
    this.load();
  }

  /** In the address, so that it can be sent to somebody. */
  remember() {
    const words = new URLSearchParams(this.words);
    if (this.open) words.set("group", this.open);
    history.replaceState(null, "", `#rollouts${words.size ? `?${words}` : ""}`);
  }

  /** More groups have ended: the first page shows them, unless somebody reads in it. */
  heard({ now }) {
    const ended = Object.values(now.books).reduce((sum, one) => sum + one.admitted - one.open, 0);
    const idle = !this.open && !this.words.get("page") && !this.element.contains(document.activeElement);
    if (ended === this.ended || !idle || Date.now() - this.loaded < NEWER_MS) return;
    this.ended = ended;
    this.load();
  }

  async load() {
    this.loaded = Date.now();
    const turn = (this.turn += 1);
    const failed = (error) => ({ error: error.message, rows: [], total: 0, fates: {} });
    const found = await this.source.groups(this.words.toString()).catch(failed);
    if (turn !== this.turn) return;
    this.rows = found.rows;
    this.list.draw(found, this.words.get("sort") ?? "-at", this.open);
    this.filters.offer(found.fates);
    say(this.filters.count, counted(found, this.source.isFrozen));
    if (found.reading !== undefined) setTimeout(() => turn === this.turn && this.load(), READING_MS);
  }

  async choose(index) {
    this.chosen = index;
    this.list.focus(index);
    await this.show(this.rows[index].id);
  }

  async show(id) {
    this.open = id;
    this.remember();
    this.list.mark(id);
    const failed = (error) => ({ error: error.message });
    const group = await this.source.group(id).catch(failed);
    if (this.open !== id) return;
    const view = () => groupView(group, this.shading, () => this.close());
    replace(this.side, group.error ? h("div", { class: "panel nothing" }, group.error) : view());
    this.element.classList.add("opened");
  }

  close() {
    this.open = null;
    this.element.classList.remove("opened");
    replace(this.side);
    this.list.mark(null);
    this.remember();
  }

  /** Escape closes; arrows, j and k go through the list and take an opened group along. */
  key(event) {
    if (event.key === "Escape" && this.open) {
      this.close();
      this.list.focus(this.chosen);
      return;
    }
    if (event.target.closest?.("input, select, textarea")) return;
    const here = this.list.focused;
    if (event.key === "Enter" && here >= 0) this.choose(here);
    if (!(event.key in STEPS) || !this.rows.length || event.target.closest?.(".side")) return;
    event.preventDefault();
    const next = Math.min(this.rows.length - 1, Math.max(0, here + STEPS[event.key]));
    if (this.open) this.choose(next);
    else this.list.focus(next);
  }
}

function counted(found, isFrozen) {
  if (found.reading !== undefined) {
    return `reading the archive${found.reading ? `, ${Math.round(found.reading * 100)} %` : " …"}`;
  }
  const groups = found.total === 1 ? "1 group" : `${whole(found.total)} groups`;
  return isFrozen ? `${groups} of ${whole(found.all)} are in this report` : groups;
}
