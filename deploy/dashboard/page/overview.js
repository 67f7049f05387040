// How the run goes: figures, curves, the timeline with its lanes, staleness and times.
// For: the first tab. Not for: lists of single things (`records.js`, `rollouts.js`).

import { h, panel, replace, say } from "./dom.js";
import { clock, number, percent, seconds, whole } from "./format.js";
import { Lanes } from "./lanes.js";
import { LEFT, LineChart } from "./line_chart.js";
import { Link } from "./link.js";
import { poolColour, streamColour } from "./roles.js";
import { clockTicks, ticks } from "./scale.js";

const [SMOOTHINGS, STREAMS] = [{ none: 0, some: 0.6, much: 0.9 }, ["prompts", "rollouts", "scored"]];

export class Overview {
  constructor(facts) {
    Object.assign(this, { facts, axis: "version", smoothing: "none" });
    this.curves = new Link();
    this.times = new Link();
    this.figures = h("div", { class: "figures" });
    this.decision = h("p", { class: "note decision" });
    this.findings = h("div", { class: "findings", role: "status" });
    this.makeCurves();
    this.makeTimeline();
    this.histogram = h("div", { class: "bars" });
    this.books = h("div", {});
    const curves = [this.reward, this.accuracy, this.loss, this.gradient].map((one) => one.element);
    this.flow = panel("Flow", h("span", { class: "note" }, "▾ the scheduler moved slots · drag to zoom, double-click for all"),
      this.backlog.element, this.pools.element, this.lanes.element, this.decision);
    this.element = h("div", { class: "overview" }, this.findings, this.figures,
      panel("Learning", this.controls(), h("div", { class: "curves" }, curves)),
      this.flow,
      h("div", { class: "aside" },
        h("div", { class: "stack" }, panel("Staleness of trained groups", null, this.histogram), panel("Books", null, this.books)),
        panel("Weights", null, h("div", { class: "curves" }, this.sync.element, this.behind.element))));
  }

  makeCurves() {
    const options = {
      link: this.curves, xText: (x) => (this.axis === "time" ? clock(x) : `v${whole(x)}`),
      xTicks: (...all) => (this.axis === "time" ? clockTicks(...all) : ticks(...all).filter(Number.isInteger)),
    };
    this.reward = new LineChart("Reward", { ...options, empty: "no step yet" });
    this.accuracy = new LineChart("Held-out accuracy", { ...options, empty: "not measured yet" });
    this.loss = new LineChart("Loss", { ...options, empty: "no step yet" });
    this.gradient = new LineChart("Gradient norm", { ...options, floor: 0, empty: "not recorded" });
    this.sync = new LineChart("Seconds of a step", { ...options, height: 180, floor: 0, yText: seconds, empty: "no step yet" });
  }

  makeTimeline() {
    const domain = () => this.stretch();
    const options = { link: this.times, xText: clock, xTicks: clockTicks, left: LEFT, floor: 0, domain, yText: whole, wholes: true, empty: "no history recorded" };
    this.backlog = new LineChart("Backlog, groups", { ...options, height: 150 });
    this.pools = new LineChart("Pools, slots or processes", { ...options, height: 110 });
    this.behind = new LineChart("Versions that engines are behind", { ...options, left: 44, height: 180, empty: "no engine yet" });
    this.lanes = new Lanes({ link: this.times, domain });
  }

  /** Seconds that the timeline shows when nothing is zoomed into. */
  stretch() {
    const last = this.facts.history.at(-1);
    return last ? [0, Math.max(10, last.at - this.facts.begun)] : [0, 10];
  }

  controls() {
    const pick = (name, values, chosen, act) => h("label", { class: "pick" }, `${name} `,
      h("select", { onchange: (event) => { act(event.target.value); this.drawCurves(); } },
        values.map((value) => h("option", { selected: value === chosen }, value))));
    return h("div", { class: "controls" },
      pick("over", ["version", "time"], this.axis, (value) => { this.axis = value; this.curves.zoom(null); }),
      pick("smoothing", Object.keys(SMOOTHINGS), this.smoothing, (value) => { this.smoothing = value; }));
  }

  draw() {
    if (!this.facts.now) return;
    this.drawFindings();
    this.drawFigures();
    this.drawCurves();
    this.drawTimeline();
    this.drawStaleness();
    this.drawBooks();
  }

  drawFindings() {
    const key = JSON.stringify(this.facts.stuck.map((one) => [one.what, one.why, one.mend]));
    if (this.findingsKey === key) return;
    this.findingsKey = key;
    replace(this.findings, this.facts.stuck.map((one) => h("div", { class: one.holds ? "finding holds" : "finding" },
      h("b", {}, one.what), h("span", {}, one.why), h("em", {}, one.mend))));
  }

  drawFigures() {
    const { now, settings, steps } = this.facts;
    const last = steps.at(-1);
    const [before, after] = now.accuracy;
    const told = [
      ["Version", `${whole(Math.max(0, now.version))}`, `of ${whole(settings.steps)}`, now.version / settings.steps],
      ["Reward", number(last?.reward), "mean of the last batch"],
      ["Held-out accuracy", number(after), (before ?? null) === null ? "not measured" : `from ${number(before)}`],
      ["Staleness", number(now.staleness.mean, 2), `largest ${now.staleness.max ?? "–"}, allowed ${settings.staleness}`],
      ["Tokens a second", whole(now.tokens_per_s), `${whole(now.completions_per_s)} completions/s`],
      ["Open groups", whole(now.books.train.open), backlogWords(now.backlog)],
      ["Time", clock(now.elapsed_s), settings.stop_when ? `until ${settings.stop_when}` : "until all versions"],
    ];
    if (!this.figures.children.length) replace(this.figures, told.map(() => figure()));
    told.forEach(([name, value, note, share], index) => {
      const [label, shown, under, bar] = this.figures.children[index].children;
      say(label, name); say(shown, value); say(under, note);
      bar.hidden = share === undefined;
      bar.value = share ?? 0;
    });
  }

  drawCurves() {
    const { facts, axis } = this;
    for (const chart of [this.reward, this.loss, this.gradient]) chart.smoothing = SMOOTHINGS[this.smoothing];
    const step = (name, colour, value) => ({ name, colour, points: facts.curve(facts.steps, value, axis) });
    this.reward.show([step("reward", "train", (one) => one.reward)]);
    const tasks = [...new Set(facts.evaluations.flatMap((one) => Object.keys(one.tasks ?? {})))];
    const measured = (name, colour, value) => ({ name, colour, dots: true, points: facts.curve(facts.evaluations, value, axis) });
    const parts = tasks.length > 1 ? tasks.map((task, index) => measured(task, ["judge", "train", "more"][index % 3], (one) => one.tasks[task])) : [];
    this.accuracy.show([measured("accuracy", "rollout", (one) => one.accuracy), ...parts]);
    this.loss.show([step("loss", "judge", (one) => one.loss)]);
    this.gradient.show([step("norm", "more", (one) => one.grad_norm)]);
    this.sync.show([step("publish", "rollout", (one) => one.publish_s), step("train", "train", (one) => one.train_s),
      step("wait", "other", (one) => one.wait_s)]);
  }

  drawTimeline() {
    const { facts } = this;
    const { moves } = facts;
    const { decision } = facts.now;
    say(this.decision, decision && facts.now.live ? `last decision, ${clock(decision.age_s)} ago: ${decision.sentence}` : "");
    this.flow.hidden = this.behind.element.hidden = !facts.history.length && !facts.now.live;
    this.backlog.show(STREAMS.map((name) => (
      { name, colour: streamColour(name), points: facts.timeline((one) => one.backlog[name]) })), moves);
    this.pools.show(facts.pools.filter((pool) => !["feeder", "launcher"].includes(pool)).map((pool) => (
      { name: pool, colour: poolColour(pool), stepped: true, points: facts.timeline((one) => members(one, pool)) })), moves);
    this.behind.show([{ name: "behind", colour: "rollout", stepped: true, points: facts.timeline(behind) }]);
    this.lanes.show(facts.history, facts.begun);
  }

  drawStaleness() {
    const { counts } = this.facts.now.staleness;
    const all = Object.values(counts).reduce((a, b) => a + b, 0);
    const rows = all ? Array.from({ length: this.facts.settings.staleness + 1 }, (_, value) => [value, counts[value] ?? 0]) : [];
    for (const [value, count] of Object.entries(counts)) if (Number(value) >= rows.length) rows.push([value, count]);
    replace(this.histogram, rows.length ? rows.map(([value, count]) => h("div", { class: "bar" },
      h("span", {}, `${value}`), h("i", { style: { width: `${(100 * count) / all}%` } }),
      h("b", {}, percent(count / all)), h("em", {}, whole(count)))) : h("p", { class: "nothing" }, "nothing trained yet"),
    rows.length ? h("p", { class: "note" }, "versions between sampling and training · groups") : null);
  }

  drawBooks() {
    const { books, reasons } = this.facts.now;
    const names = ["admitted", "trained", "retired", "buried", "open"];
    const row = (kind) => h("tr", {}, h("th", { scope: "row" }, kind), names.map((name) => h("td", {}, whole(books[kind][name]))),
      h("td", { class: balances(books[kind]) ? "good" : "bad" }, balances(books[kind]) ? "✓" : "≠"));
    const told = Object.entries(reasons).map(([name, count]) => `${name.replace(".", ": ").replaceAll("_", " ")} ${whole(count)}`);
    replace(this.books, h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, h("th", {}), names.map((name) => h("th", { scope: "col" }, name)),
      h("th", { title: "admitted = trained + retired + buried + open" }, "="))), h("tbody", {}, row("train"), row("eval"))),
    h("p", { class: "note" }, told.length ? told.join(" · ") : "nothing retired or buried"));
  }
}

const figure = () => h("div", { class: "tile" }, h("span", {}), h("strong", {}), h("small", {}), h("progress", { max: 1, "aria-label": "steps done" }));

const backlogWords = (backlog) => STREAMS.map((name) => `${name} ${whole(backlog[name] ?? 0)}`).join(" · ");

const balances = (books) => books.admitted === books.trained + books.retired + books.buried + books.open;

/** Slots or processes that a pool has at a moment, gone ones left out. */
const members = (moment, pool) => Object.values(moment.lanes).filter(([of, state]) => of === pool && !["gone", "vacant"].includes(state)).length;

/** Versions between the live one and the oldest that an engine serves; NaN without engines. */
function behind(moment) {
  const served = Object.values(moment.lanes).filter(([pool, state, , version]) => pool === "rollout" && state === "serving" && version >= 0);
  return served.length ? Math.max(0, moment.version - Math.min(...served.map((lane) => lane[3]))) : NaN;
}
