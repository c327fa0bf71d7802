// A map of rows that have coordinates, in the projection of Mercator. Lines of latitude and longitude, and
// the outlines of countries (Natural Earth), which come when a map is first shown; tiles where the endpoint has them.
import { svg, ticks } from "./svg.js";
import { isNumber, textOf } from "./terms.js";
import { Tiles } from "./tiles.js";

const OUTLINE = document.documentElement.dataset.outline;
const MOST = 3000; // points that are drawn
const WIDE = 1000;
const HIGH = 460;
const LARGEST = 2 ** 23; // how wide the world may be drawn
const POLE = 89.9; // degrees; what is nearer is drawn here
const POINT = /^\s*(?:<[^>]*>\s*)?POINT\s*Z?\s*\(\s*(-?[\d.]+)\s+(-?[\d.]+)/i;

/** How the coordinates of a row are read: a function to [longitude, latitude], or null where there are none. */
export function coordinates(vars, rows) {
  const some = rows.slice(0, 50);
  const all = (name, test) => some.length > 0 && some.every((row) => !row.cells[name] || test(row.cells[name])) && some.some((row) => row.cells[name]);
  const wkt = vars.find((name) => all(name, (term) => POINT.test(term.value)));
  if (wkt) {
    return (row) => {
      const found = POINT.exec(row.cells[wkt]?.value ?? "");
      return found && within(Number(found[1]), Number(found[2]));
    };
  }
  const numeric = (name) => all(name, (term) => term.value !== "" && (isNumber(term) || Number.isFinite(Number(term.value))));
  const latitude = vars.find((name) => /lat/i.test(name) && numeric(name));
  const longitude = vars.find((name) => /(lon|lng)/i.test(name) && numeric(name));
  if (!latitude || !longitude) return null;
  return (row) => row.cells[longitude] && row.cells[latitude] && within(Number(row.cells[longitude].value), Number(row.cells[latitude].value));
}

function within(longitude, latitude) {
  return Math.abs(longitude) <= 180 && Math.abs(latitude) <= 90 ? [longitude, latitude] : null;
}

// Places in widths of the world, from its left and from its top.
const across = (longitude) => (longitude + 180) / 360;
const down = (latitude) => 0.5 - Math.asinh(Math.tan((Math.min(Math.max(latitude, -POLE), POLE) * Math.PI) / 180)) / (2 * Math.PI);
const longitudeOf = (x) => x * 360 - 180;
const latitudeOf = (y) => (Math.atan(Math.sinh((0.5 - y) * 2 * Math.PI)) * 180) / Math.PI;

let outlines = null;

/** The outlines: lists of places, once they are there. */
async function outlined() {
  try {
    const lines = await (await fetch(OUTLINE)).json();
    return lines.map((steps) => {
      const places = [];
      let x = 0, y = 0;
      for (let n = 0; n < steps.length; n += 2) places.push([(x += steps[n]) / 10, (y += steps[n + 1]) / 10]);
      return places;
    });
  } catch {
    outlines = null; // to be asked for again
    return [];
  }
}

export class PointMap {
  constructor(place) {
    this.root = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", class: "drawing" });
    this.ground = this.root.appendChild(svg("g", { class: "tiles" }));
    this.land = this.root.appendChild(svg("path", { class: "land" }));
    this.lines = this.root.appendChild(svg("g", { class: "lines" }));
    this.points = this.root.appendChild(svg("g"));
    this.drawn = new Map();
    this.box = null;
    this.tiles = null;
    place.append(this.root);
  }

  /** Has tiles of a source behind the outlines from now on. */
  tile(source) {
    this.tiles = new Tiles(source, this.root, this.ground);
    new ResizeObserver(() => this.box && this.tiles.draw(this.box, WIDE, HIGH)).observe(this.root);
  }

  clear() {
    this.box = null;
    this.drawn.clear();
    this.points.replaceChildren();
  }

  /**
   * @param {string[]} vars
   * @param {object[]} rows
   * @param {(row: object) => [number, number] | null} read
   * @param {[string, string][]} prefixes
   */
  show(vars, rows, read, prefixes) {
    const found = [];
    for (const row of rows) {
      const at = found.length < MOST && read(row);
      if (at) found.push([row, at]);
    }
    if (found.length) this.fit(found.map(([, at]) => at));
    const keep = new Set();
    for (const [row, at] of found) {
      keep.add(row);
      let point = this.drawn.get(row);
      if (!point) {
        point = svg("circle", { r: 9 });
        point.append(svg("title"));
        this.points.append(point);
        this.drawn.set(row, point);
      }
      if (point.version === row.version && point.box === this.box) continue;
      point.version = row.version;
      point.box = this.box;
      const [x, y] = this.at(at);
      point.style.transform = `translate(${x}px, ${y}px)`;
      point.setAttribute("class", ["point", row.kind, row.late && "late"].filter(Boolean).join(" "));
      point.firstChild.textContent = vars.map((name) => `${name}: ${textOf(row.cells[name], prefixes)}`).join("\n");
    }
    for (const [row, point] of this.drawn) {
      if (keep.has(row)) continue;
      point.remove();
      this.drawn.delete(row);
    }
    this.root.setAttribute("aria-label", `Map of ${found.length} of ${rows.length} rows; all that it shows is in the table`);
  }

  /** Chooses what part of the world is seen; as long as all points are in it, it stays. */
  fit(places) {
    const inside = ([x, y]) => x >= 0 && x <= WIDE && y >= 0 && y <= HIGH;
    if (this.box && places.every((place) => inside(this.at(place)))) return;
    const span = (n, project) => {
      let low = Infinity, high = -Infinity;
      for (const place of places) {
        const here = project(place[n]);
        low = Math.min(low, here);
        high = Math.max(high, here);
      }
      return [(low + high) / 2, (high - low) * 1.25];
    };
    const [[x, width], [y, height]] = [span(0, across), span(1, down)];
    const scale = Math.min(WIDE / width, HIGH / height, LARGEST);
    const [left, top] = [x - WIDE / scale / 2, y - HIGH / scale / 2];
    this.box = {
      left, top, scale,
      west: longitudeOf(left), east: longitudeOf(left + WIDE / scale), south: latitudeOf(top + HIGH / scale), north: latitudeOf(top),
    };
    this.tiles?.draw(this.box, WIDE, HIGH);
    this.graticule();
    this.outline();
  }

  /** Draws what is in sight of the outlines. */
  async outline() {
    const box = this.box;
    const lines = await (outlines ??= outlined());
    if (box !== this.box) return;
    const { west, east, south, north } = box;
    const drawn = [];
    for (const places of lines) {
      for (let n = 1; n < places.length; n++) {
        const [one, other] = [places[n - 1], places[n]];
        const seen = Math.max(one[0], other[0]) >= west && Math.min(one[0], other[0]) <= east && Math.max(one[1], other[1]) >= south && Math.min(one[1], other[1]) <= north;
        // What crosses the antimeridian is no line on this map.
        if (seen && Math.abs(one[0] - other[0]) < 180) drawn.push(`M${this.at(one).map((each) => each.toFixed(1))}L${this.at(other).map((each) => each.toFixed(1))}`);
      }
    }
    this.land.setAttribute("d", drawn.join(""));
  }

  at([longitude, latitude]) {
    const { left, top, scale } = this.box;
    return [(across(longitude) - left) * scale, (down(latitude) - top) * scale];
  }

  graticule() {
    const { west, east, south, north } = this.box;
    this.lines.replaceChildren();
    for (const longitude of ticks(west, east, 6)) {
      const [x] = this.at([longitude, south]);
      if (Math.abs(longitude) > 180) continue;
      this.lines.append(svg("line", { x1: x, x2: x, y1: 0, y2: HIGH }), svg("text", { x: x + 4, y: HIGH - 6 }, degrees(longitude, "E", "W")));
    }
    for (const latitude of ticks(south, north, 5)) {
      const [, y] = this.at([west, latitude]);
      if (Math.abs(latitude) > 90) continue;
      this.lines.append(svg("line", { x1: 0, x2: WIDE, y1: y, y2: y }), svg("text", { x: 4, y: y - 4 }, degrees(latitude, "N", "S")));
    }
  }
}

function degrees(value, above, below) {
  return value ? `${Math.abs(value)}° ${value < 0 ? below : above}` : "0°";
}
