// What every slot or process did over time, a lane each: the pool's colour, filled as far as it was busy.
// For: the Gantt under the timeline. Not for: numbers (the tip says those under the cursor).

import { colour, h, onWidth, replace } from "./dom.js";
import { clock, percent } from "./format.js";
import { LEFT, RIGHT } from "./line_chart.js";
import { linear } from "./scale.js";
import { poolColour } from "./roles.js";

const [LANE, GAP] = [22, 5];
const COLUMN = 3;
/** Key → lanes down, moments on. */
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const [POOL, STATE, BUSY, VERSION] = [0, 1, 2, 3];

export class Lanes {
  /** `link`: shared with the timeline above; `domain`: the seconds it shows. */
  constructor({ link, domain }) {
    Object.assign(this, { link, domain, width: 0, moments: [], begun: 0, pools: [], names: [] });
    this.canvas = h("canvas", { class: "lanes", role: "img", tabindex: 0 });
    this.tip = h("div", { class: "tip", hidden: true });
    this.plot = h("div", { class: "plot" }, this.canvas, this.tip);
    this.key = h("div", { class: "legend" });
    this.element = h(
      "figure",
      { class: "figure" },
      h("figcaption", {}, h("h3", {}, "Slots and processes"), this.key),
      this.plot,
    );
    onWidth(this.plot, (width) => {
      this.width = width;
      this.draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    link.addEventListener("range", () => this.draw());
    link.addEventListener("cursor", () => this.point());
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerleave", () => {
      this.row = null;
      link.point(null);
    });
    this.canvas.addEventListener("dblclick", () => link.zoom(null));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("blur", () => link.point(null));
  }

  show({ history, begun, pools }) {
    Object.assign(this, { moments: history, begun, pools });
    this.names = [...new Set(history.flatMap((one) => Object.keys(one.lanes)))].sort(byWork(history));
    this.draw();
  }

  draw() {
    const [ratio, height] = [devicePixelRatio || 1, Math.max(1, this.names.length) * (LANE + GAP)];
    this.ratio = ratio;
    if (!this.width) return;
    Object.assign(this.canvas, { width: this.width * ratio, height: height * ratio });
    this.canvas.style.setProperty("height", `${height}px`);
    this.context = this.canvas.getContext("2d");
    this.context.scale(ratio, ratio);
    this.x = linear(this.link.range ?? this.domain(), [LEFT, this.width - RIGHT]);
    this.paint = {
      ink: colour("faint"),
      loading: colour("loading"),
      switching: colour("switching"),
      back: colour("lane"),
      pools: new Map(this.pools.map((pool) => [pool, colour(poolColour(pool))])),
    };
    this.names.forEach((name, row) => this.lane(name, row * (LANE + GAP)));
    this.drawKey();
    this.canvas.setAttribute("aria-label", this.summary());
  }

  /** One lane: its name, then a cell a few pixels wide for each stretch of time. */
  lane(name, top) {
    const context = this.context;
    Object.assign(context, { fillStyle: this.paint.ink, font: "12px system-ui, sans-serif", textAlign: "right" });
    context.fillText(name.length > 13 ? `${name.slice(0, 12)}…` : name, LEFT - 8, top + LANE / 2 + 4);
    context.fillStyle = this.paint.back;
    context.fillRect(LEFT, top, this.width - RIGHT - LEFT, LANE);
    for (const cell of this.cells(name)) this.cell(cell, top);
  }

  /** Moments of a lane gathered into columns: the last pool and state of each, the mean of its busy shares. */
  *cells(name) {
    let cell = null;
    for (const [index, moment] of this.moments.entries()) {
      const lane = moment.lanes[name];
      const next = this.moments[index + 1]?.at ?? moment.at + 1;
      const [from, to] = [this.x(moment.at - this.begun), this.x(Math.min(next, moment.at + 60) - this.begun)];
      if (!lane || to < LEFT || from > this.width - RIGHT) continue;
      const same = cell && cell.pool === lane[POOL] && cell.state === lane[STATE] && from - cell.to < 1;
      if (same && to - cell.from < COLUMN) {
        Object.assign(cell, { to, busy: cell.busy + (lane[BUSY] ?? 0), count: cell.count + 1 });
      } else {
        if (cell) yield cell;
        cell = { from, to, pool: lane[POOL], state: lane[STATE], busy: lane[BUSY] ?? 0, count: 1 };
      }
    }
    if (cell) yield cell;
  }

  cell({ from, to, pool, state, busy, count }, top) {
    const context = this.context;
    const [left, right] = [Math.max(LEFT, from), Math.min(this.width - RIGHT, to)].map(
      (x) => Math.round(x * this.ratio) / this.ratio,
    );
    const wide = Math.max(1 / this.ratio, right - left);
    if (state === "gone" || state === "vacant") return;
    if (state === "serving") {
      context.fillStyle = this.paint.pools.get(pool) ?? this.paint.ink;
      context.globalAlpha = 0.22;
      context.fillRect(left, top, wide, LANE);
      context.globalAlpha = 1;
      const high = LANE * Math.min(1, busy / count);
      context.fillRect(left, top + LANE - high, wide, high);
    } else {
      context.fillStyle = this.paint[state === "parked" ? "switching" : state];
      context.fillRect(left, top, wide, LANE);
    }
  }

  drawKey() {
    const item = (text, css, kind = "") =>
      h("span", { class: `key ${kind}`, style: { "--line": css } }, h("i", {}), text);
    replace(
      this.key,
      this.pools.map((pool) => item(pool, `var(--${poolColour(pool)})`)),
      item("loading", "var(--loading)"),
      item("switching", "var(--switching)"),
      h("span", { class: "note" }, "filled: busy, pale: waiting"),
    );
  }

  summary() {
    const last = this.moments.at(-1);
    if (!last) return "Slots and processes: nothing yet";
    const told = this.names.map((name) => [name, last.lanes[name]]).filter(([, lane]) => lane);
    return `Slots and processes now: ${told.map(([name, lane]) => `${name} ${inWords(lane)}`).join("; ")}`;
  }

  move(event) {
    const box = this.canvas.getBoundingClientRect();
    this.row = Math.floor((event.clientY - box.top) / (LANE + GAP));
    this.link.point(this.x.back(Math.max(LEFT, event.clientX - box.left)));
  }

  /** Up and down choose a lane, left and right a moment; Escape shows all. */
  press(event) {
    const [down, along] = STEPS[event.key] ?? [0, 0];
    if (event.key === "Escape") this.link.zoom(null);
    if (!(event.key in STEPS) || !this.moments.length) return;
    event.preventDefault();
    this.row = within((this.row ?? -down) + down, this.names.length);
    const at = this.begun + (this.link.x ?? Infinity);
    const here = this.moments.findLastIndex((one) => one.at <= at + 1e-6);
    this.link.point(this.moments[within(here + along, this.moments.length)].at - this.begun);
  }

  point() {
    const name = this.names[this.row];
    const chosen = this.canvas.matches(":hover") || document.activeElement === this.canvas;
    this.tip.hidden = this.link.x === null || name === undefined || !chosen;
    if (this.tip.hidden) return;
    const at = this.begun + this.link.x + 1e-6;
    const moment = this.moments.findLast((one) => one.at <= at) ?? this.moments[0];
    const lane = moment?.lanes[name];
    replace(this.tip, h("b", {}, `${clock(this.link.x)} ${name}`), h("span", {}, lane ? inWords(lane) : "not there"));
    this.tip.style.setProperty("left", `${Math.min(this.x(this.link.x) + 12, this.width - 190)}px`);
    this.tip.style.setProperty("top", `${this.row * (LANE + GAP)}px`);
  }
}

function inWords(lane) {
  const busy = (lane[BUSY] ?? null) === null ? "" : ` ${percent(lane[BUSY])} busy`;
  const version = lane[VERSION] >= 0 ? `, version ${lane[VERSION]}` : "";
  return `${lane[POOL] || "no pool"}: ${lane[STATE]}${busy}${version}`;
}

/** Slots first, then processes in the order work flows. */
function byWork(moments) {
  const order = ["rollout", "judge", "reward", "train", "trainer", "rank", "feeder"];
  const roles = new Map(
    moments.flatMap((one) => Object.entries(one.lanes).map(([name, lane]) => [name, lane[POOL]])),
  );
  const rank = (name) => (name.startsWith("slot") ? -1 : order.indexOf(roles.get(name)) + 1 || 99);
  return (a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true });
}

const within = (index, length) => Math.min(length - 1, Math.max(0, index));
