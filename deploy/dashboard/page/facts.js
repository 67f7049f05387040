// What the page knows of a run, kept up to date by events. For: every view. Not for: drawing.

const MOST = 4000;

export class Facts {
  settings = {};
  now = null;
  dead = [];
  stuck = [];
  steps = [];
  evaluations = [];
  history = [];

  hear(event, message) {
    if (event === "whole") Object.assign(this, message);
    else this.add(message);
  }

  /** A list that nothing was added to stays the same list. */
  add({ now, dead, stuck, steps, evaluations, history }) {
    Object.assign(this, { now, dead, stuck });
    this.steps = thinned(byVersion(this.steps, steps));
    this.evaluations = byVersion(this.evaluations, evaluations);
    // What was told between the whole and now may be in both.
    const last = this.history.at(-1)?.at ?? -Infinity;
    const fresh = history.filter((one) => one.at > last);
    if (fresh.length) this.history = thinned([...this.history, ...fresh]);
  }

  /** Seconds since 1970 from which the timeline counts. */
  get begun() {
    return Math.min(
      this.history[0]?.at ?? Infinity,
      this.steps[0] ? this.steps[0].at - this.steps[0].seconds : Infinity,
    );
  }

  get pools() {
    const found = new Set(this.history.flatMap((one) => Object.values(one.lanes).map((lane) => lane[0])));
    return [...found].filter(Boolean);
  }

  /** Points of a number of the steps, over `version` or over seconds of the run. */
  curve(records, value, axis) {
    const begun = this.begun;
    const x = axis === "time" ? (one) => one.at - begun : (one) => one.version;
    return records.filter((one) => Number.isFinite(value(one))).map((one) => [x(one), value(one)]);
  }

  /** Points of a number of every moment, over seconds. */
  timeline(value) {
    const begun = this.begun;
    return this.history.map((one) => [one.at - begun, value(one)]);
  }

  get moves() {
    const begun = this.begun;
    return this.history
      .flatMap((one) => one.moves ?? [])
      .map((move) => ({
        x: move.at - begun,
        slots: moved(move),
        why: move.why,
        text: `${moved(move)}: ${move.why}`,
      }));
  }
}

function moved(move) {
  return move.slots.map(([slot, from, to]) => `${slot} ${from || "vacant"} → ${to || "vacant"}`).join(", ");
}

/** A replayed step is told again: the last word on a version counts. */
function byVersion(known, more) {
  if (!more.length) return known;
  const last = known.at(-1)?.version ?? -1;
  if (more.every((one, index) => one.version > (more[index - 1]?.version ?? last))) return [...known, ...more];
  const all = new Map([...known, ...more].map((one) => [one.version, one]));
  return [...all.values()].sort((a, b) => a.version - b.version);
}

const thinned = (list) =>
  list.length <= MOST ? list : list.filter((_, index) => index % 2 === 0 || index > MOST - 200);
