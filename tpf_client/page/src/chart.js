// A chart of a column of numbers over the time that one watches.
import { svg, ticks } from "./svg.js";
import { isNumber } from "./terms.js";

const WIDE = 1000;
const HIGH = 300;
const LEFT = 60;
const BELOW = 24;
const KEPT = 1000; // moments

/** The columns that hold numbers. */
export function numeric(vars, rows) {
  const some = rows.slice(0, 50);
  return vars.filter((name) => some.some((row) => row.cells[name]) && some.every((row) => !row.cells[name] || isNumber(row.cells[name]) || isPlainNumber(row.cells[name])));
}

function isPlainNumber(term) {
  return term.type === "literal" && /^\s*-?\d+(\.\d+)?\s*$/.test(term.value);
}

export class Chart {
  constructor(place) {
    this.root = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", class: "drawing" });
    place.append(this.root);
    this.clear();
  }

  clear() {
    this.column = null;
    this.moments = [];
    this.root.replaceChildren();
  }

  /** Notes the numbers of a column as they are at an instant of the server's clock. */
  note(column, rows, now) {
    if (column !== this.column) this.clear();
    this.column = column;
    let [low, high, sum, count] = [Infinity, -Infinity, 0, 0];
    for (const row of rows) {
      const value = Number(row.cells[column]?.value ?? NaN);
      if (Number.isNaN(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
      sum += value;
      count += 1;
    }
    if (count) this.moments.push({ now, low, high, mean: sum / count });
    if (this.moments.length > KEPT) this.moments.shift();
  }

  draw() {
    if (!this.moments.length) return;
    const from = this.moments[0].now;
    const until = Math.max(this.moments.at(-1).now, from + 10_000);
    let low = Math.min(...this.moments.map((each) => each.low));
    let high = Math.max(...this.moments.map((each) => each.high));
    if (low === high) [low, high] = [low - 1, high + 1];
    const x = (now) => LEFT + ((now - from) / (until - from)) * (WIDE - LEFT - 10);
    const y = (value) => 10 + ((high - value) / (high - low)) * (HIGH - BELOW - 20);
    const lines = svg("g", { class: "lines" });
    for (const value of ticks(low, high, 5)) {
      lines.append(svg("line", { x1: LEFT, x2: WIDE, y1: y(value), y2: y(value) }), svg("text", { x: 4, y: y(value) + 5 }, value.toLocaleString("en")));
    }
    for (const seconds of ticks(0, (until - from) / 1000, 6)) {
      const now = from + seconds * 1000;
      if (x(now) > WIDE - 50) continue;
      lines.append(svg("text", { x: x(now) - 26, y: HIGH - 4 }, new Date(now).toISOString().slice(11, 19)));
    }
    // What was so until the next moment is drawn as steps.
    const steps = (name) => this.moments.flatMap((each, n) => [`${x(each.now)},${y(each[name])}`, `${x(this.moments[n + 1]?.now ?? until)},${y(each[name])}`]);
    const band = [...steps("high"), ...steps("low").reverse()].join(" ");
    this.root.replaceChildren(lines, svg("polygon", { class: "band", points: band }), svg("polyline", { class: "mean", points: steps("mean").join(" ") }));
    const last = this.moments.at(-1);
    const round = (value) => Number(value.toPrecision(4)).toLocaleString("en");
    this.root.setAttribute("aria-label", `${this.column} over time: now ${round(last.mean)} on average, from ${round(last.low)} to ${round(last.high)}`);
  }
}
