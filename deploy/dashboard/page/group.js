// One finished group: prompt, then each sibling's text in the pieces that were sampled, shaded by what a person asks.
// For: the opened group. Not for: finding it (`rollouts.js`).

import { h, replace } from "./dom.js";
import { moment, number, percent } from "./format.js";

const SHADES = { advantage: byAdvantage, version: byVersion, probability: byProbability, nothing: () => null };

/** What a person chose to shade by; kept from one group to the next. */
export const freshShading = () => ({ by: "advantage" });

/** `close` is called by its button. */
export function groupView(group, shading, close) {
  const siblings = h("div", { class: "siblings" });
  const one = (sibling, index) => siblingView(sibling, index, group, SHADES[shading.by]);
  const draw = () => replace(siblings, legend(group, shading.by), group.siblings.map(one));
  const choose = (name) => { shading.by = name; draw(); };
  draw();
  return h("section", { class: "panel group" },
    h("div", { class: "panel-head" }, h("h2", {}, group.group),
      h("button", { type: "button", "aria-label": "close the group", onclick: close }, "✕")),
    h("dl", { class: "short" }, facts(group).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("h3", {}, "Prompt"), h("pre", { class: "text" }, group.prompt),
    group.answer ? [h("h3", {}, "Right answer"), h("pre", { class: "text" }, group.answer)] : null,
    group.siblings.length ? [shades(shading.by, choose), siblings] : h("p", { class: "nothing" }, "not sampled"));
}

function shades(chosen, choose) {
  const button = (name) => h("label", {}, h("input", {
    type: "radio", name: "shade", value: name, checked: name === chosen, onchange: () => choose(name) }), name);
  const at = { class: "shades", role: "radiogroup", "aria-label": "shade tokens by" };
  return h("div", at, h("span", {}, "shade by"), Object.keys(SHADES).map(button));
}

function facts(group) {
  const versions = sampledBy(group);
  return [
    [
      "end",
      group.fate === "trained"
        ? `trained into version ${group.trained}`
        : `${group.fate}: ${group.reason.replaceAll("_", " ")}`,
    ],
    ["sampled by", versions.length ? `version ${versions.join(", ")}` : "nobody"],
    ["reward", number(group.reward)],
    ["task", `${group.task}${group.kind === "eval" ? " (held out)" : ""}`],
    ["admitted at", (group.floor ?? null) === null ? "–" : `version ${group.floor}`],
    ["attempts", String(group.attempt + 1)],
    ["closed", `${moment(group.at)} by ${group.by}`],
    ["temperature", number(group.temperature)],
  ];
}

const sampledBy = (group) =>
  [...new Set(group.siblings.flatMap((one) => one.spans.map((span) => span[2])))].sort((a, b) => a - b);

function siblingView(one, index, group, shade) {
  const parts = Object.entries(one.parts).map(([name, value]) => `${name} ${number(value)}`);
  const head = h(
    "header",
    {},
    h("b", {}, `#${index + 1}`),
    badge("reward", number(one.reward)),
    one.advantage === null ? null : badge("advantage", signed(one.advantage), one.advantage),
    badge("tokens", String(one.tokens)),
    badge("ended by", one.finish),
    parts.length > 1 ? h("small", {}, parts.join(" · ")) : null,
  );
  const text = one.pieces
    ? one.pieces.map((piece, place) => token(piece, place, one, group, shade))
    : one.text || "(no text)";
  return h("article", { class: "sibling" }, head, h("pre", { class: "text" }, text));
}

function badge(name, value, sign = 0) {
  return h(
    "span",
    { class: sign > 0 ? "badge good" : sign < 0 ? "badge bad" : "badge" },
    `${name} `,
    h("b", {}, value),
  );
}

function token(piece, place, one, group, shade) {
  const version = versionAt(one, place);
  const given = one.given.includes(place);
  const tells = [
    `token ${place + 1}`,
    `version ${version ?? "?"}`,
    given ? "given, not sampled" : `probability ${percent(one.probabilities[place])}`,
  ];
  const paint = given ? null : shade(one, place, group);
  return h(
    "span",
    { class: given ? "token given" : "token", title: tells.join(" · "), style: paint ? { background: paint } : {} },
    piece || "·",
  );
}

const versionAt = (one, place) => one.spans.find(([start, end]) => place >= start && place < end)?.[2];

const mixed = (colour, share) => `color-mix(in srgb, var(--${colour}) ${Math.round(share * 100)}%, transparent)`;

function byAdvantage(one, _, group) {
  const most = Math.max(...group.siblings.map((other) => Math.abs(other.advantage ?? 0)));
  if (!one.advantage || !most) return null;
  return mixed(one.advantage > 0 ? "good" : "bad", 0.12 + 0.4 * (Math.abs(one.advantage) / most));
}

const VERSION_COLOURS = ["rollout", "judge", "train", "more", "other"];

function byVersion(one, place, group) {
  const rank = sampledBy(group).indexOf(versionAt(one, place));
  return rank < 0 ? null : mixed(VERSION_COLOURS[rank % VERSION_COLOURS.length], 0.35);
}

/** The less likely, the darker. */
function byProbability(one, place) {
  const unlikely = 1 - one.probabilities[place];
  return unlikely < 0.02 ? null : mixed("judge", 0.08 + 0.6 * unlikely);
}

function legend(group, by) {
  const item = (paint, text) => h("span", { class: "key" }, h("i", { style: { background: paint } }), text);
  const told = {
    advantage: () => [
      item(mixed("good", 0.45), "better than its siblings"),
      item(mixed("bad", 0.45), "worse"),
      item("transparent", "no difference"),
    ],
    version: () =>
      sampledBy(group).map((version, rank) =>
        item(mixed(VERSION_COLOURS[rank % VERSION_COLOURS.length], 0.35), `version ${version}`),
      ),
    probability: () => [item(mixed("judge", 0.6), "unlikely when sampled"), item(mixed("judge", 0.1), "likely")],
    nothing: () => [],
  };
  return h("div", { class: "legend" }, told[by]());
}

const signed = (value) => (value > 0 ? `+${number(value)}` : number(value));
