// A map of rows that have coordinates (Leaflet): what lies close together is a cluster; a dot opens its row. Its ground
// are outlines of countries (Natural Earth), and tiles where the endpoint names somebody who has them.
import L from "leaflet/dist/leaflet-src.js";
import "leaflet.markercluster";
import { isNumber, textOf } from "./terms.js";

const OUTLINE = document.documentElement.dataset.outline;
const DEEPEST = 19;
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

/** The outlines of countries: lists of [latitude, longitude]. */
async function outlines() {
  const lines = await (await fetch(OUTLINE)).json();
  return lines.flatMap((steps) => {
    const parts = [[]];
    let x = 0, y = 0;
    for (let n = 0; n < steps.length; n += 2) {
      // What crosses the antimeridian is no line on this map.
      if (n && Math.abs(steps[n]) > 1800) parts.push([]);
      parts.at(-1).push([(y += steps[n + 1]) / 10, (x += steps[n]) / 10]);
    }
    return parts;
  });
}

/** Whether the reader wants little sent. */
const sparing = () => navigator.connection?.saveData || matchMedia("(prefers-reduced-data: reduce)").matches;

export class PointMap {
  /**
   * @param {HTMLElement} place
   * @param {(row: object) => void} chosen called with the row whose dot was pressed
   */
  constructor(place, chosen) {
    this.place = place;
    this.chosen = chosen;
    this.drawn = new Map();
    this.map = null;
    this.tiles = null;
  }

  /** Has tiles of a source behind the dots from now on; and says whose they are. */
  tile(source) {
    this.tiles = source;
    const named = document.createElement("p");
    named.className = "soft attribution";
    // Addresses in it are links, and nothing else is markup.
    for (const [n, part] of source.attribution.split(/(https?:\/\/[^\s<>"]+[^\s<>".,;)])/).entries()) {
      named.append(n % 2 ? Object.assign(document.createElement("a"), { href: part, rel: "noreferrer", textContent: part }) : part);
    }
    this.place.after(named);
  }

  clear() {
    this.cluster?.clearLayers();
    this.drawn.clear();
    this.fitted = false;
  }

  begin() {
    this.map = L.map(this.place, { attributionControl: false, maxZoom: DEEPEST, worldCopyJump: true, zoomSnap: 0.5 });
    this.cluster = L.markerClusterGroup({
      maxClusterRadius: 40,
      showCoverageOnHover: false,
      animate: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      iconCreateFunction: (cluster) => L.divIcon({ className: "cluster", iconSize: [32, 32], html: Object.assign(document.createElement("span"), { textContent: cluster.getChildCount().toLocaleString("en") }) }),
    });
    outlines().then((lines) => L.polyline(lines, { className: "land", interactive: false, noClip: false }).addTo(this.map).bringToBack(), () => {});
    this.cluster.addTo(this.map);
    if (this.tiles && !sparing()) {
      const layer = L.tileLayer(this.tiles.url, { maxZoom: DEEPEST });
      let missing = false;
      layer.on("loading", () => (missing = false));
      layer.on("tileerror", () => (missing = true));
      layer.on("load", () => this.place.classList.toggle("tiled", !missing));
      layer.addTo(this.map);
    }
    new ResizeObserver(() => this.map.invalidateSize()).observe(this.place);
  }

  /**
   * @param {string[]} vars
   * @param {object[]} rows
   * @param {(row: object) => [number, number] | null} read
   * @param {[string, string][]} prefixes
   */
  show(vars, rows, read, prefixes) {
    if (!this.map) this.begin();
    const keep = new Set();
    const places = [], come = [], gone = [];
    for (const row of rows) {
      const at = read(row);
      if (!at) continue;
      const [longitude, latitude] = at;
      keep.add(row);
      places.push([latitude, longitude]);
      const before = this.drawn.get(row);
      if (before?.version === row.version) continue;
      const style = [row.kind, row.late && "late"].filter(Boolean).join(" ");
      if (before) {
        before.version = row.version;
        before.getElement()?.setAttribute("class", `point leaflet-interactive ${style}`);
        before.options.className = `point ${style}`;
        const { lat, lng } = before.getLatLng();
        if (lat === latitude && lng === longitude) continue;
        this.cluster.removeLayer(before);
        before.setLatLng([latitude, longitude]);
        come.push(before);
        continue;
      }
      const dot = L.circleMarker([latitude, longitude], { radius: 5, className: `point ${style}` });
      dot.version = row.version;
      dot.on("click", () => this.chosen(row));
      const text = document.createElement("span");
      text.textContent = vars.map((name) => `${name}: ${textOf(row.cells[name], prefixes)}`).join("\n");
      dot.bindTooltip(text);
      this.drawn.set(row, dot);
      come.push(dot);
    }
    for (const [row, dot] of this.drawn) {
      if (keep.has(row)) continue;
      gone.push(dot);
      this.drawn.delete(row);
    }
    // As long as all are in sight, it stays where it is; a map whose reader has moved it stays, too.
    if (places.length && !this.fitted) {
      this.map.fitBounds(L.latLngBounds(places).pad(0.1), { maxZoom: 14, animate: false });
      this.fitted = true;
    }
    this.cluster.removeLayers(gone);
    this.cluster.addLayers(come);
    this.place.setAttribute("aria-label", `Map of ${places.length} of ${rows.length} rows; all that it shows is in the table`);
  }
}
