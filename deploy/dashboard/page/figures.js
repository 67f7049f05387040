// The first glance: what holds the run up, and the numbers everybody asks for. For: the overview. Not for: curves.

import { h, replace, say } from "./dom.js";
import { clock, number, whole } from "./format.js";
import { STREAMS } from "./roles.js";

export class Figures {
  constructor() {
    this.findings = h("div", { class: "findings", role: "status" });
    this.tiles = h("div", { class: "figures" });
    this.told = "";
  }

  draw(facts) {
    this.drawFindings(facts.stuck);
    const told = tiles(facts);
    if (!this.tiles.children.length) replace(this.tiles, told.map(tile));
    told.forEach(([name, value, note, share], index) => {
      const [label, shown, under, bar] = this.tiles.children[index].children;
      [[label, name], [shown, value], [under, note]].forEach(([element, text]) => say(element, text));
      bar.hidden = share === undefined;
      bar.value = share ?? 0;
    });
  }

  /** Drawn only when others are found, so that nobody hears the same again. */
  drawFindings(stuck) {
    const told = JSON.stringify(stuck.map((one) => [one.what, one.why, one.mend]));
    if (this.told === told) return;
    this.told = told;
    replace(this.findings, stuck.map((one) => h("div", { class: one.holds ? "finding holds" : "finding" },
      h("b", {}, one.what), h("span", {}, one.why), h("em", {}, one.mend))));
  }
}

const tile = () => h("div", { class: "tile" }, h("span", {}), h("strong", {}), h("small", {}),
  h("progress", { max: 1, "aria-label": "share of the versions" }));

/** [name, value, note, share of a whole] */
function tiles({ now, settings, steps }) {
  const [before, after] = now.accuracy;
  const waiting = STREAMS.map((name) => `${name} ${whole(now.backlog[name] ?? 0)}`);
  const stale = `largest ${now.staleness.max ?? "–"}, allowed ${settings.staleness}`;
  return [
    ["Version", whole(Math.max(0, now.version)), `of ${whole(settings.steps)}`, now.version / settings.steps],
    ["Reward", number(steps.at(-1)?.reward), "mean of the last batch"],
    ["Held-out accuracy", number(after), before === null ? "not measured" : `from ${number(before)}`],
    ["Staleness", number(now.staleness.mean, 2), stale],
    ["Tokens a second", whole(now.tokens_per_s), `${whole(now.completions_per_s)} completions/s`],
    ["Open groups", whole(now.books.train.open), waiting.join(" · ")],
    ["Time", clock(now.elapsed_s), settings.stop_when ? `until ${settings.stop_when}` : "until all versions"],
  ];
}
