// Where a run's facts come from: a server that tells what is new, or this very file (a report).
// For: one face for both. Not for: what is made of the facts (`facts.js`).

const EVENTS = ["whole", "more"];

/** A run on the server. Reconnects by itself, and is told the whole again. */
export class LiveRun {
  constructor(name) {
    this.name = name;
    this.base = `/api/runs/${encodeURIComponent(name)}`;
    this.isFrozen = false;
  }

  /** `hear(event, message)` for every event; `away(true)` when the server is gone, `away(false)` when it is back. */
  listen(hear, away) {
    this.stream = new EventSource(`${this.base}/events`);
    for (const name of EVENTS) this.stream.addEventListener(name, (event) => hear(name, JSON.parse(event.data)));
    this.stream.onopen = () => away(false);
    this.stream.onerror = () => {
      away(true);
      // A refused connection ends the browser's own tries in some browsers; the server may only be starting.
      if (this.stream.readyState === EventSource.CLOSED) setTimeout(() => this.listen(hear, away), 2000);
    };
  }

  groups(words) {
    return answer(`${this.base}/groups?${words}`);
  }

  group(id) {
    return answer(`${this.base}/groups/${id.split("/").map(encodeURIComponent).join("/")}`);
  }
}

export async function answer(address) {
  const reply = await fetch(address, { headers: { Accept: "application/json" } });
  if (!reply.ok) throw new Error((await reply.text()).slice(0, 300));
  return reply.json();
}

/** A run as it was when the report was made: everything lies in the page. */
export class FrozenRun {
  constructor(facts) {
    this.name = facts.whole.run;
    this.facts = facts;
    this.isFrozen = true;
  }

  listen(hear) {
    hear("whole", this.facts.whole);
  }

  async groups(words) {
    const asked = new URLSearchParams(words);
    const rows = this.facts.groups.filter((row) => fits(row, asked)).sort(by(asked.get("sort") || "-at"));
    return {
      total: rows.length,
      page: 0,
      page_size: rows.length,
      rows,
      fates: this.facts.fates,
      all: this.facts.all,
    };
  }

  async group(id) {
    const found = this.facts.whole_groups[id];
    if (!found) throw new Error(`${id} is not among the groups kept in this report`);
    return found;
  }
}

function fits(row, asked) {
  const within = (name, value) => {
    const [low, high] = [asked.get(`${name}_min`), asked.get(`${name}_max`)];
    return (!low && !high) || (value !== null && (!low || value >= Number(low)) && (!high || value <= Number(high)));
  };
  const [text, fate, kind] = [asked.get("text")?.toLowerCase(), asked.get("fate"), asked.get("kind")];
  return (
    (!text || `${row.id}\n${row.prompt}\n${row.answer}`.toLowerCase().includes(text)) &&
    (!fate || row.fate === fate || row.reason === fate) &&
    (!kind || row.kind === kind) &&
    within("reward", row.reward) &&
    within("length", row.length) &&
    within("version", row.newest) &&
    within("trained", row.trained)
  );
}

function by(sort) {
  const [name, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
  return (a, b) =>
    (a[name] === null) - (b[name] === null) || sign * (a[name] < b[name] ? -1 : Number(a[name] > b[name]));
}
