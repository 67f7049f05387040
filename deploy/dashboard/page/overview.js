// How the run goes: figures, curves, the timeline with its lanes, staleness and times.
// For: the first tab. Not for: lists of single things (`records.js`, `rollouts.js`).

import { h, panel, say } from "./dom.js";
import { Figures } from "./figures.js";
import { clock, seconds, whole } from "./format.js";
import { Lanes } from "./lanes.js";
import { LEFT, LineChart } from "./line_chart.js";
import { Link } from "./link.js";
import { poolColour, STREAMS } from "./roles.js";
import { clockTicks, ticks } from "./scale.js";
import { drawBooks, drawStaleness } from "./tallies.js";

const SMOOTHINGS = { none: 0, some: 0.6, much: 0.9 };

export class Overview {
  constructor(facts) {
    Object.assign(this, { facts, axis: "version", smoothing: "none", drawn: {} });
    this.curves = new Link();
    this.times = new Link();
    this.figures = new Figures();
    this.decision = h("p", { class: "note decision" });
    this.histogram = h("div", { class: "bars" });
    this.books = h("div", {});
    this.makeCurves();
    this.makeTimeline();
    this.element = h("div", { class: "overview" }, this.figures.findings, this.figures.tiles, this.layLearning(),
      this.layFlow(), h("div", { class: "aside" }, this.layTallies(), this.layWeights()));
  }

  layLearning() {
    const curves = [this.reward, this.accuracy, this.loss, this.gradient].map((one) => one.element);
    return panel("Learning", this.controls(), h("div", { class: "curves" }, curves));
  }

  layFlow() {
    const note = h("span", { class: "note" }, "▾ the scheduler moved slots · drag to zoom, double-click for all");
    const charts = [this.backlog.element, this.pools.element, this.lanes.element];
    this.flow = panel("Flow", note, charts, this.decision);
    return this.flow;
  }

  layTallies() {
    const staleness = panel("Staleness of trained groups", null, this.histogram);
    return h("div", { class: "stack" }, staleness, panel("Books", null, this.books));
  }

  layWeights() {
    return panel("Weights", null, h("div", { class: "curves" }, this.sync.element, this.behind.element));
  }

  makeCurves() {
    const options = {
      link: this.curves,
      xText: (x) => (this.axis === "time" ? clock(x) : `v${whole(x)}`),
      xTicks: (...all) => (this.axis === "time" ? clockTicks(...all) : ticks(...all).filter(Number.isInteger)),
    };
    this.reward = new LineChart("Reward", { ...options, empty: "no step yet" });
    this.accuracy = new LineChart("Held-out accuracy", { ...options, empty: "not measured yet" });
    this.loss = new LineChart("Loss", { ...options, empty: "no step yet" });
    this.gradient = new LineChart("Gradient norm", { ...options, floor: 0, empty: "not recorded" });
    this.sync = new LineChart("Seconds of a step", {
      ...options,
      height: 230,
      left: 56,
      floor: 0,
      yText: seconds,
      empty: "no step yet",
    });
  }

  makeTimeline() {
    const domain = () => this.stretch();
    const options = {
      link: this.times,
      xText: clock,
      xTicks: clockTicks,
      left: LEFT,
      floor: 0,
      domain,
      yText: whole,
      wholes: true,
      empty: "no history recorded",
    };
    this.backlog = new LineChart("Backlog, groups", { ...options, height: 150 });
    this.pools = new LineChart("Pools, slots or processes", { ...options, height: 110 });
    this.behind = new LineChart("Versions that engines are behind", {
      ...options,
      left: 44,
      height: 230,
      empty: "no engine yet",
    });
    this.lanes = new Lanes({ link: this.times, domain });
  }

  /** Seconds that the timeline shows when nothing is zoomed into. */
  stretch() {
    const last = this.facts.history.at(-1);
    return last ? [0, Math.max(10, last.at - this.facts.begun)] : [0, 10];
  }

  controls() {
    const pick = (name, values, chosen, act) =>
      h(
        "label",
        { class: "pick" },
        `${name} `,
        h(
          "select",
          {
            onchange: (event) => {
              act(event.target.value);
              this.drawCurves();
            },
          },
          values.map((value) => h("option", { selected: value === chosen }, value)),
        ),
      );
    return h(
      "div",
      { class: "controls" },
      pick("over", ["version", "time"], this.axis, (value) => {
        this.axis = value;
        this.curves.zoom(null);
      }),
      pick("smoothing", Object.keys(SMOOTHINGS), this.smoothing, (value) => {
        this.smoothing = value;
      }),
    );
  }

  /** What nothing new was told of stays as it is drawn. */
  draw() {
    if (!this.facts.now) return;
    const { now, settings, steps, evaluations, history } = this.facts;
    this.figures.draw(this.facts);
    if (steps !== this.drawn.steps || evaluations !== this.drawn.evaluations) this.drawCurves();
    if (history !== this.drawn.history) this.drawTimeline();
    this.drawn = { steps, evaluations, history };
    this.flow.hidden = this.behind.element.hidden = !history.length && !now.live;
    this.tellDecision(now);
    drawStaleness(this.histogram, now.staleness.counts, settings.staleness);
    drawBooks(this.books, now.books, now.reasons);
  }

  drawCurves() {
    const { facts, axis } = this;
    for (const chart of [this.reward, this.loss, this.gradient]) chart.smoothing = SMOOTHINGS[this.smoothing];
    const step = (name, colour, value) => ({ name, colour, points: facts.curve(facts.steps, value, axis) });
    this.reward.show([step("reward", "train", (one) => one.reward)]);
    const tasks = [...new Set(facts.evaluations.flatMap((one) => Object.keys(one.tasks ?? {})))];
    const measured = (name, colour, value) => ({
      name,
      colour,
      dots: true,
      points: facts.curve(facts.evaluations, value, axis),
    });
    const parts =
      tasks.length > 1
        ? tasks.map((task, index) => measured(task, ["judge", "train", "more"][index % 3], (one) => one.tasks[task]))
        : [];
    this.accuracy.show([measured("accuracy", "rollout", (one) => one.accuracy), ...parts]);
    this.loss.show([step("loss", "judge", (one) => one.loss)]);
    this.gradient.show([step("norm", "more", (one) => one.grad_norm)]);
    this.sync.show([
      step("publish", "rollout", (one) => one.publish_s),
      step("train", "train", (one) => one.train_s),
      step("wait", "other", (one) => one.wait_s),
    ]);
  }

  tellDecision({ decision, live }) {
    say(this.decision, decision && live ? `last decision, ${clock(decision.age_s)} ago: ${decision.sentence}` : "");
  }

  drawTimeline() {
    const { facts } = this;
    const { moves } = facts;
    this.backlog.show(
      STREAMS.map((name) => ({
        name,
        colour: poolColour(name),
        points: facts.timeline((one) => one.backlog[name]),
      })),
      moves,
    );
    this.pools.show(
      facts.pools
        .filter((pool) => !["feeder", "launcher"].includes(pool))
        .map((pool) => ({
          name: pool,
          colour: poolColour(pool),
          stepped: true,
          points: facts.timeline((one) => members(one, pool)),
        })),
      moves,
    );
    this.behind.show([{ name: "behind", colour: "rollout", stepped: true, points: facts.timeline(behind) }]);
    this.lanes.show(facts);
  }
}

/** Slots or processes that a pool has at a moment, gone ones left out. */
const members = (moment, pool) =>
  Object.values(moment.lanes).filter(([of, state]) => of === pool && !["gone", "vacant"].includes(state)).length;

/** Versions between the live one and the oldest that an engine serves; NaN without engines. */
function behind(moment) {
  const served = Object.values(moment.lanes).filter(
    ([pool, state, , version]) => pool === "rollout" && state === "serving" && version >= 0,
  );
  return served.length ? Math.max(0, moment.version - Math.min(...served.map((lane) => lane[3]))) : NaN;
}
