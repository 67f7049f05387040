// Which colour belongs to whom: a stream has the colour of the pool that reads it; pure.
// For: charts and lanes. Not for: the colours themselves (`style.css`).

export const STREAMS = ["prompts", "rollouts", "scored"];

const COLOURS = {
  prompts: "rollout",
  rollout: "rollout",
  rollouts: "judge",
  reward: "judge",
  judge: "judge",
  scored: "train",
  train: "train",
  trainer: "train",
  rank: "train",
  feeder: "other",
  "": "other",
};

/** Name of the CSS variable of a pool or a stream. */
export const poolColour = (pool) => COLOURS[pool] ?? "more";
