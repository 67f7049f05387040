// The page: which view the address asks for, what is heard of the run, and the keys.
// For: putting the parts together. Not for: any of them.

import { h, replace, say } from "./dom.js";
import { Facts } from "./facts.js";
import { Overview } from "./overview.js";
import { Records } from "./records.js";
import { Rollouts } from "./rollouts.js";
import { Runs } from "./runs.js";
import { FrozenRun, LiveRun } from "./source.js";

const TABS = { overview: "Overview", rollouts: "Rollouts", records: "Records" };
const AWAY = "the dashboard's server does not answer; what is shown is what it said last";
const KEYS = { o: "overview", r: "rollouts", d: "records" };
const HELP = [
  ["o r d", "overview, rollouts, records"],
  ["/", "search"],
  ["j k ↑ ↓", "through the list"],
  ["Enter", "open a group"],
  ["Esc", "close it; see all of a chart"],
  ["← →", "read a chart in focus; ↑ ↓ its lanes"],
  ["g", "all runs"],
  ["?", "these keys"],
];

class RunPage {
  constructor(source) {
    this.source = source;
    this.facts = new Facts();
    this.views = {
      overview: new Overview(this.facts),
      rollouts: new Rollouts(source),
      records: new Records(this.facts),
    };
    this.state = h("span", { class: "state", role: "status" });
    this.stage = h("span", { class: "stage" });
    this.tabs = h(
      "nav",
      { "aria-label": "views" },
      Object.entries(TABS).map(([name, title]) => h("a", { href: `#${name}`, data: { view: name } }, title)),
    );
    replace(
      document.getElementById("head"),
      brand(source.isFrozen),
      h("h1", {}, source.name),
      this.state,
      this.stage,
      this.tabs,
      helpButton(),
    );
    document.title = `${source.name} · Tidemill`;
    addEventListener("hashchange", () => this.route());
    document.addEventListener("visibilitychange", () => this.draw());
    addEventListener("keydown", (event) => this.view === "rollouts" && this.views.rollouts.key(event));
    this.route();
    source.listen(
      (event, message) => this.hear(event, message),
      (away) => this.lost(away),
    );
  }

  route() {
    const [name, words] = location.hash.slice(1).split("?");
    this.view = name in TABS ? name : "overview";
    for (const link of this.tabs.children) link.toggleAttribute("aria-current", link.dataset.view === this.view);
    replace(document.getElementById("content"), this.views[this.view].element);
    if (this.view === "rollouts") this.views.rollouts.restore(new URLSearchParams(words));
    else this.views[this.view].draw();
  }

  hear(event, message) {
    this.facts.hear(event, message);
    this.lost(false);
    this.draw();
  }

  /** Nothing is drawn that nobody sees. */
  draw() {
    if (document.hidden || !this.facts.now) return;
    if (this.view === "rollouts") this.views.rollouts.heard(this.facts);
    else this.views[this.view].draw();
  }

  /** What the header says of run and server. */
  lost(away) {
    const { now } = this.facts;
    if (!now && !away) return;
    const [kind, word] = away ? ["lost", "reconnecting"] : stateOf(now, this.source.isFrozen, this.facts.stuck);
    this.state.className = `state ${kind}`;
    say(this.state, word);
    say(this.stage, away ? AWAY : this.inWords(kind));
  }

  inWords(kind) {
    const { now } = this.facts;
    if (kind === "empty") return `nothing is here yet; start it: tidemill resume ${this.source.name}`;
    return now.finished || [now.stage, now.detail].filter(Boolean).join(": ");
  }
}

function stateOf(now, isFrozen, stuck) {
  if (now.finished) return ["finished", "finished"];
  if (isFrozen) return ["stopped", "as of this report"];
  if (!now.live && now.stage === "starting") return ["running", "starting"];
  if (!now.live) return now.version < 0 && !now.elapsed_s ? ["empty", "has not begun"] : ["stopped", "not running"];
  return stuck.some((one) => one.holds) ? ["stuck", "held up"] : ["running", "live"];
}

const brand = (isFrozen) => h("a", { class: "brand", href: isFrozen ? "#overview" : "/" }, "Tidemill");

function helpButton() {
  const dialog = h(
    "dialog",
    { class: "panel", "aria-label": "keys" },
    h("h2", {}, "Keys"),
    h(
      "dl",
      {},
      HELP.flatMap(([keys, what]) => [h("dt", {}, keys), h("dd", {}, what)]),
    ),
    h("form", { method: "dialog" }, h("button", { autofocus: true }, "Close")),
  );
  document.body.append(dialog);
  addEventListener("keydown", (event) => event.key === "?" && !typing(event) && dialog.showModal());
  return h("button", { type: "button", class: "help", "aria-label": "keys", onclick: () => dialog.showModal() }, "?");
}

const typing = (event) =>
  event.target.closest?.("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey;

addEventListener("keydown", (event) => {
  if (typing(event)) return;
  if (event.key === "/") {
    event.preventDefault();
    if (page instanceof RunPage) location.hash = location.hash.startsWith("#rollouts") ? location.hash : "#rollouts";
    setTimeout(() => document.querySelector("input[type=search]")?.focus());
  }
  if (event.key === "g" && !(page instanceof RunPage && page.source.isFrozen)) location.href = "/";
  if (page instanceof RunPage && event.key in KEYS) location.hash = `#${KEYS[event.key]}`;
});

function start() {
  const frozen = document.getElementById("frozen");
  if (frozen) return new RunPage(new FrozenRun(JSON.parse(frozen.textContent)));
  const [, run] = /^\/runs\/([^/]+)/.exec(location.pathname) ?? [];
  if (run) return new RunPage(new LiveRun(decodeURIComponent(run)));
  const runs = new Runs();
  replace(document.getElementById("head"), brand(false), h("h1", {}, "Runs"), helpButton());
  replace(document.getElementById("content"), runs.element);
  return runs;
}

const page = start();
