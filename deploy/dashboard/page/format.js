// Numbers and times as a person reads them; pure. For: every view. Not for: axes (`scale.js`).

const DASH = "–";

/** At most `places` decimals, fewer for large numbers. */
export function number(value, places = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size !== 0 && size < 10 ** -places) return value.toExponential(1);
  const kept = size >= 100 ? 0 : size >= 10 ? Math.min(places, 1) : places;
  return value.toLocaleString("en", { maximumFractionDigits: kept });
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const whole = (value) => (!Number.isFinite(value ?? NaN) ? DASH : WHOLE.format(Math.round(value)));

export const percent = (share) => ((share ?? null) === null ? DASH : `${Math.round(share * 100)} %`);

/** `4.2 s`, `80 ms` */
export function seconds(value) {
  if ((value ?? null) === null) return DASH;
  if (value >= 120) return clock(value);
  return value >= 1 || value === 0 ? `${number(value, 2)} s` : `${number(value * 1000, 0)} ms`;
}

/** `3:07`, `1:02:45` */
export function clock(value) {
  if ((value ?? null) === null) return DASH;
  const all = Math.max(0, Math.round(value));
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Local date and time of seconds since 1970. */
export function moment(at) {
  return new Date(at * 1000).toLocaleString("sv", { dateStyle: "short", timeStyle: "medium" });
}
