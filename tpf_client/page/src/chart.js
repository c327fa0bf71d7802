// A chart of a column of numbers over the time that one watches: average, least and most.
import uPlot from "uplot";
import { isNumber } from "./terms.js";

const KEPT = 1000; // moments
const HIGH = 320;

/** The columns that hold numbers. */
export function numeric(vars, rows) {
  const some = rows.slice(0, 50);
  return vars.filter((name) => some.some((row) => row.cells[name]) && some.every((row) => !row.cells[name] || isNumber(row.cells[name]) || isPlainNumber(row.cells[name])));
}

function isPlainNumber(term) {
  return term.type === "literal" && /^\s*-?\d+(\.\d+)?\s*$/.test(term.value);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  /**
   * @param {HTMLElement} place
   * @param {() => number} now the server's clock
   */
  constructor(place, now) {
    this.place = place;
    this.now = now;
    this.clear();
    new ResizeObserver(() => place.clientWidth && this.plot?.setSize({ width: place.clientWidth, height: HIGH })).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.renew());
  }

  clear() {
    this.column = null;
    this.moments = [[], [], [], []]; // instants, and then the greatest, mean and least values
    this.renew();
  }

  renew() {
    this.plot?.destroy();
    this.plot = null;
    if (this.column) this.draw();
  }

  /** Notes the numbers of a column as they are now. */
  note(column, rows) {
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
    if (count) [this.last(), high, sum / count, low].forEach((value, n) => this.moments[n].push(value));
    if (this.moments[0].length > KEPT) this.moments.forEach((each) => each.shift());
  }

  /** This moment, in seconds: the clock is set now and then, but what is drawn never goes back. */
  last() {
    return Math.max(this.moments[0].at(-1) ?? 0, this.now() / 1000);
  }

  draw() {
    if (!this.moments[0].length || !this.place.clientWidth) return;
    this.plot ??= this.make();
    // What is so until now is drawn up to now.
    this.plot.setData(this.moments.map((each, n) => [...each, n ? each.at(-1) : this.last()]));
    const [high, mean, low] = this.moments.slice(1).map((each) => Number(each.at(-1).toPrecision(4)).toLocaleString("en"));
    this.place.setAttribute("aria-label", `${this.column} over time: now ${mean} on average, from ${low} to ${high}`);
  }

  make() {
    const [main, edge, soft] = ["--accent", "--edge", "--soft"].map(colour);
    const axis = { stroke: soft, grid: { stroke: edge, width: 1 }, ticks: { stroke: edge, width: 1 }, font: "12px system-ui" };
    const line = (label, width) => ({ label, stroke: main, width, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } });
    const options = {
      width: this.place.clientWidth,
      height: HIGH,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { range: (_, first, last) => [first, Math.max(last, first + 10)] }, y: { range: (_, low, high) => (low === high ? [low - 1, high + 1] : uPlot.rangeNum(low, high, 0.1, true)) } },
      axes: [{ ...axis, space: 80, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400], values: (_, all) => all.map((each) => new Date(each * 1000).toISOString().slice(11, 19)) }, { ...axis, size: 64 }],
      series: [{}, line("most", 1), line("average", 3), line("least", 1)],
      bands: [{ series: [1, 3], fill: `${main}26` }],
    };
    return new uPlot(options, [[], [], [], []], this.place);
  }
}
