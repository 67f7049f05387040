// Axes: from values to pixels, round ticks, fewer points than pixels; pure. For: charts. Not for: drawing.

/** A linear map of [low, high] to [from, to]. */
export function linear([low, high], [from, to]) {
  const slope = high === low ? 0 : (to - from) / (high - low);
  const map = (value) => from + (value - low) * slope;
  map.back = (pixel) => (slope === 0 ? low : low + (pixel - from) / slope);
  return map;
}

/** How much closer than asked for ticks may stand, so that there are not much fewer. */
const NEAR = 0.75;

/** About `count` round numbers between low and high. */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough * NEAR) ?? 10);
  return steps(low, high, step);
}

const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** Round times, in seconds. */
export function clockTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const step = CLOCK_STEPS.find((one) => one >= rough) ?? Math.ceil(rough / 86400) * 86400;
  return steps(low, high, step);
}

function steps(low, high, step) {
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) {
    found.push(Number((place * step).toPrecision(12)));
  }
  return found;
}

/** Lowest and highest of all points' values, a little room around; `floor` is shown at least. */
export function extent(values, { floor = null, ceiling = null } = {}) {
  const known = values.filter((value) => Number.isFinite(value));
  let low = known.length ? known.reduce((a, b) => Math.min(a, b)) : 0;
  let high = known.length ? known.reduce((a, b) => Math.max(a, b)) : 1;
  if (floor !== null) low = Math.min(low, floor);
  if (ceiling !== null) high = Math.max(high, ceiling);
  if (high === low) [low, high] = high === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  const room = (high - low) * 0.06;
  return [low === floor ? low : low - room, high === ceiling ? high : high + room];
}

/** At most two points a pixel column, its lowest and its highest, so that no spike is lost. */
export function thin(points, columns) {
  if (points.length <= columns * 2) return points;
  const found = [];
  const per = points.length / columns;
  for (let column = 0; column < columns; column += 1) {
    const some = points.slice(Math.floor(column * per), Math.floor((column + 1) * per));
    if (!some.length) continue;
    const low = some.reduce((a, b) => (b[1] < a[1] ? b : a));
    const high = some.reduce((a, b) => (b[1] > a[1] ? b : a));
    found.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  return found;
}

/** Exponential mean, freed of the bias of its beginning; `weight` 0 changes nothing. */
export function smoothed(points, weight) {
  let [mean, known] = [0, 0];
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, y];
    mean = mean * weight + (1 - weight) * y;
    known = known * weight + (1 - weight);
    return [x, mean / known];
  });
}

/** Index of the point nearest to x; points are in order. */
export function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(points[low]?.[0] - x) <= Math.abs(points[high]?.[0] - x) ? low : high;
}
