// What charts over the same axis share: where the cursor is, and the part that is zoomed into.
// For: charts and lanes. Not for: what they show.

export class Link extends EventTarget {
  x = null;
  range = null;

  point(x) {
    this.x = x;
    this.dispatchEvent(new Event("cursor"));
  }

  zoom(range) {
    this.range = range;
    this.dispatchEvent(new Event("range"));
  }
}
