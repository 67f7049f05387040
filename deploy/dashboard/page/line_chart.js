// A chart of lines over one axis. For: curves and timelines. Not for: where the values come from.
// Drag to zoom, double-click or Escape to see all, arrow keys to read values; a click in the legend hides a line.

import { h, onWidth, replace, s } from "./dom.js";
import { number } from "./format.js";
import { extent, linear, nearest, smoothed, thin, ticks } from "./scale.js";

export const LEFT = 92;
export const RIGHT = 12;
const [TOP, BOTTOM] = [8, 20];
/** Height of a chart without anything to draw. */
const EMPTY = 56;

export class LineChart {
  static count = 0;

  /** series: [{name, colour, points, dots, stepped}] · options: height, link, xTicks, xText, yText, floor, ceiling,
   *  wholes (values are counts), left, empty (what to say when there is nothing to draw) */
  constructor(title, options) {
    this.options = {
      height: 170,
      left: 44,
      yText: number,
      xText: String,
      xTicks: ticks,
      empty: "nothing yet",
      ...options,
    };
    this.title = title;
    this.clip = `clip-${(LineChart.count += 1)}`;
    this.series = [];
    this.marks = [];
    this.smoothing = 0;
    this.hidden = new Set();
    this.legend = h("div", { class: "legend" });
    this.svg = s("svg", {
      class: "chart",
      role: "img",
      tabindex: 0,
      "aria-label": title,
      height: this.options.height,
    });
    this.tip = h("div", { class: "tip", hidden: true });
    this.plot = h("div", { class: "plot" }, this.svg, this.tip);
    this.element = h("figure", { class: "figure" }, h("figcaption", {}, h("h3", {}, title), this.legend), this.plot);
    this.listen();
  }

  listen() {
    onWidth(this.plot, (width) => {
      this.width = width;
      this.draw();
    });
    this.options.link.addEventListener("cursor", () => this.point());
    this.options.link.addEventListener("range", () => this.draw());
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerleave", () => this.options.link.point(null));
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    this.svg.addEventListener("pointerup", (event) => this.drop(event));
    this.svg.addEventListener("dblclick", () => this.options.link.zoom(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => this.options.link.point(null));
  }

  show(series, marks = []) {
    [this.series, this.marks] = [series, marks];
    this.draw();
  }

  get visible() {
    return this.series.filter((one) => !this.hidden.has(one.name) && one.points.length);
  }

  /** The whole picture anew; the DOM is small, because lines are single paths. */
  draw() {
    if (!this.width) return;
    this.svg.setAttribute("width", this.width);
    const height = this.visible.length ? this.options.height : EMPTY;
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.drawLegend();
    if (!this.visible.length) {
      this.x = null;
      const words = s(
        "text",
        { x: this.width / 2, y: EMPTY / 2, class: "nothing" },
        this.options.empty,
      );
      return replace(this.svg, words);
    }
    this.scale();
    this.cursor = s("g", { class: "cursor" });
    this.svg.setAttribute("aria-label", `${this.title}: ${this.series.map((one) => this.last(one)).join(", ")}`);
    replace(
      this.svg,
      this.clipping(),
      this.axes(),
      this.markLines(),
      ...this.visible.map((one) => this.line(one)),
      this.cursor,
    );
    this.point();
  }

  scale() {
    const { link, height, left, floor = null, ceiling = null } = this.options;
    const all = this.visible.flatMap((one) => [one.points[0][0], one.points.at(-1)[0]]);
    this.domain = link.range ?? this.options.domain?.() ?? [Math.min(...all), Math.max(...all)];
    if (this.domain[0] === this.domain[1]) this.domain = [this.domain[0] - 0.5, this.domain[1] + 0.5];
    this.x = linear(this.domain, [left, this.width - RIGHT]);
    this.cut = new Map(this.visible.map((one) => [one, this.within(one.points)]));
    const values = [...this.cut.values()].flatMap((points) => points.map((point) => point[1]));
    this.y = linear(extent(values, { floor, ceiling }), [height - BOTTOM, TOP]);
  }

  /** Points of the domain, and one beyond each end so that lines run to the edge. */
  within(points) {
    const [low, high] = this.domain;
    const first = points.findIndex((point) => point[0] >= low);
    if (first < 0) return points.slice(-1);
    const beyond = points.findIndex((point) => point[0] > high);
    return points.slice(Math.max(0, first - 1), beyond < 0 ? undefined : beyond + 1);
  }

  axes() {
    const { height, left, xTicks, xText, yText } = this.options;
    const [low, high] = [this.y.back(height - BOTTOM), this.y.back(TOP)];
    const across = ticks(low, high, Math.max(2, height / 45))
      .filter((value) => !this.options.wholes || Number.isInteger(value))
      .map((value) => [
        s("line", { x1: left, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value), class: "grid" }),
        s("text", { x: left - 6, y: this.y(value) + 4, class: "y-label" }, yText(value)),
      ]);
    const along = xTicks(...this.domain, Math.max(2, this.width / 60)).map((value) =>
      s(
        "text",
        { x: this.x(value), y: height - 5, class: this.x(value) > this.width - 24 ? "x-label last" : "x-label" },
        xText(value),
      ),
    );
    return s("g", {}, across, along);
  }

  /** Lines end where the axes do; dots may stand on them. */
  clipping() {
    const { left, height } = this.options;
    const box = s("rect", { x: left - 4, y: 0, width: Math.max(0, this.width - left - RIGHT + 8), height });
    return s("clipPath", { id: this.clip }, box);
  }

  last(one) {
    return `${one.name} ${this.options.yText(one.points.at(-1)?.[1])}`;
  }

  line(one) {
    const points = this.cut.get(one);
    const width = this.width - this.options.left - RIGHT;
    const drawn = thin(this.smoothing ? smoothed(points, this.smoothing) : points, width);
    const style = { "--line": `var(--${one.colour})` };
    const found = [s("path", { d: this.path(drawn, one.stepped), class: "line" })];
    if (this.smoothing) found.unshift(s("path", { d: this.path(thin(points, width)), class: "line raw" }));
    if (one.dots || points.length === 1) {
      found.push(...drawn.map(([x, y]) => s("circle", { cx: this.x(x), cy: this.y(y), r: 3, class: "dot" })));
    }
    return s("g", { style, "clip-path": `url(#${this.clip})` }, found);
  }

  path(points, stepped = false) {
    const parts = [];
    let [pen, last] = ["M", null];
    for (const [x, y] of points) {
      if (!Number.isFinite(y)) {
        pen = "M";
        last = null;
        continue;
      }
      const [px, py] = [this.x(x).toFixed(1), this.y(y).toFixed(1)];
      parts.push(stepped && last !== null ? `H${px}V${py}` : `${pen}${px} ${py}`);
      [pen, last] = ["L", py];
    }
    return parts.join("");
  }

  markLines() {
    const inside = this.marks.filter((mark) => mark.x >= this.domain[0] && mark.x <= this.domain[1]);
    return s(
      "g",
      { class: "marks" },
      inside.map((mark) =>
        s(
          "g",
          {},
          s("line", { x1: this.x(mark.x), x2: this.x(mark.x), y1: TOP, y2: this.options.height - BOTTOM }),
          s("path", { d: `M${this.x(mark.x) - 4} ${TOP - 6}h8l-4 7z` }),
        ),
      ),
    );
  }

  drawLegend() {
    replace(
      this.legend,
      this.series.map((one) =>
        h(
          "button",
          {
            type: "button",
            class: this.hidden.has(one.name) ? "key off" : "key",
            "aria-pressed": String(!this.hidden.has(one.name)),
            style: { "--line": `var(--${one.colour})` },
            onclick: () => this.toggle(one.name),
          },
          h("i", {}),
          `${one.name} `,
          h("b", {}, this.options.yText(one.points.at(-1)?.[1])),
        ),
      ),
    );
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.draw();
  }

  /** The cursor, and what the lines say there. */
  point() {
    const { link, xText, yText, height } = this.options;
    if (!this.x || !this.cursor) return;
    const shown = link.x !== null && link.x >= this.domain[0] && link.x <= this.domain[1];
    this.tip.hidden = !(shown && (this.svg.matches(":hover") || document.activeElement === this.svg));
    if (!shown) return replace(this.cursor);
    const at = this.x(link.x);
    const found = this.visible.map((one) => ({ one, point: one.points[nearest(one.points, link.x)] }));
    replace(
      this.cursor,
      s("line", { x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
      found
        .filter(({ point }) => Number.isFinite(point[1]))
        .map(({ one, point }) =>
          s("circle", {
            cx: this.x(point[0]),
            cy: this.y(point[1]),
            r: 3.5,
            style: { fill: `var(--${one.colour})` },
          }),
        ),
    );
    const marks = this.marks.filter((mark) => Math.abs(this.x(mark.x) - at) < 6);
    replace(
      this.tip,
      h("b", {}, xText(link.x)),
      found.map(({ one, point }) =>
        h("span", { style: { "--line": `var(--${one.colour})` } }, h("i", {}), `${one.name} ${yText(point[1])}`),
      ),
      marks.map((mark) => h("em", {}, mark.text)),
    );
    this.tip.style.setProperty("left", `${Math.min(at + 12, this.width - 190)}px`);
  }

  // Hands

  at(event) {
    const box = this.svg.getBoundingClientRect();
    return Math.min(this.domain[1], Math.max(this.domain[0], this.x.back(event.clientX - box.left)));
  }

  move(event) {
    if (this.x) this.options.link.point(this.at(event));
    this.drag?.box.setAttribute("x", Math.min(this.x(this.drag.from), this.x(this.at(event))));
    this.drag?.box.setAttribute("width", Math.abs(this.x(this.drag.from) - this.x(this.at(event))));
  }

  grab(event) {
    if (!this.x || event.button !== 0) return;
    this.svg.setPointerCapture(event.pointerId);
    const box = s("rect", { y: TOP, height: this.options.height - BOTTOM - TOP, width: 0, class: "zoom" });
    this.drag = { from: this.at(event), box };
    this.svg.append(box);
  }

  drop(event) {
    if (!this.drag) return;
    const [from, to] = [this.drag.from, this.at(event)].sort((a, b) => a - b);
    this.drag.box.remove();
    this.drag = null;
    if (this.x(to) - this.x(from) > 8) this.options.link.zoom([from, to]);
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };
    const points = this.visible[0]?.points;
    if (event.key === "Escape") this.options.link.zoom(null);
    if (!(event.key in steps) || !points) return;
    event.preventDefault();
    const here = this.options.link.x === null ? points.length - 1 : nearest(points, this.options.link.x);
    this.options.link.point(points[Math.min(points.length - 1, Math.max(0, here + steps[event.key]))][0]);
  }
}
