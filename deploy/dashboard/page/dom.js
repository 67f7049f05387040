// Elements from plain values. For: every part of the page. Not for: what is shown.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: attributes, `on…` listeners, `style`, `data`; children are nodes, text or lists, null is none. */
export const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

/** The same for SVG. */
export const s = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Puts `children` in the place of what the element holds. */
export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

/** Sets the text only if it is another: what a person has selected, or a reader is reading, stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A panel with a heading; `aside` stands at the right of the heading. */
export function panel(title, aside, ...content) {
  const head = h("div", { class: "panel-head" }, h("h2", {}, title), aside ?? null);
  return h("section", { class: "panel", "aria-label": title }, head, ...content);
}

/** Calls `act` with the element's width in pixels, now and when it has changed: to read it costs a layout. */
export function onWidth(element, act) {
  let known = null;
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (width !== known) act((known = width));
  }).observe(element);
}

/** The colour a CSS variable has now, for canvases. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
