// Pictures of the ground behind a map, where the endpoint names somebody who has them; else nobody is asked.
import { svg } from "./svg.js";

const SIDE = 256; // pixels of a tile
const DEEPEST = 19;

/** Whether the reader wants little sent. */
const sparing = () => navigator.connection?.saveData || matchMedia("(prefers-reduced-data: reduce)").matches;

export class Tiles {
  /**
   * @param {{url: string, attribution: string}} source a template, and whom to name
   * @param {SVGElement} root the map, which says by its class whether all that is in sight has come
   * @param {SVGElement} place what tiles are drawn in
   */
  constructor(source, root, place) {
    this.source = source;
    this.root = root;
    this.place = place;
    this.shown = "";
    const named = document.createElement("p");
    named.className = "soft attribution";
    // Addresses in it are links, and nothing else is markup.
    for (const [n, part] of source.attribution.split(/(https?:\/\/[^\s<>"]+[^\s<>".,;)])/).entries()) {
      named.append(n % 2 ? Object.assign(document.createElement("a"), { href: part, rel: "noreferrer", textContent: part }) : part);
    }
    root.after(named);
  }

  /**
   * Draws what is in sight.
   * @param {{left: number, top: number, scale: number}} box a corner in widths of the world, and the width of the world
   * @param {number} wide
   * @param {number} high both in units of the drawing
   */
  draw({ left, top, scale }, wide, high) {
    const pixels = this.root.clientWidth / wide;
    if (!pixels || sparing()) return;
    const zoom = Math.min(Math.max(Math.round(Math.log2((scale * pixels) / SIDE)), 0), DEEPEST);
    const shown = [left, top, scale, zoom].join();
    if (shown === this.shown) return;
    this.shown = shown;
    const count = 2 ** zoom;
    const side = scale / count;
    const within = (place) => Math.min(Math.max(Math.floor(place * count), 0), count - 1);
    const images = [];
    for (let y = within(top); y <= within(top + high / scale); y++) {
      for (let x = within(left); x <= within(left + wide / scale); x++) images.push(this.image(zoom, x, y, x * side - left * scale, y * side - top * scale, side));
    }
    this.place.replaceChildren(...images);
    let missing = images.length;
    this.root.classList.remove("tiled");
    for (const image of images) {
      image.addEventListener("load", () => {
        missing -= 1;
        if (!missing && image.isConnected) this.root.classList.add("tiled");
      });
      // The outlines are there, too.
      image.addEventListener("error", () => image.remove());
    }
  }

  image(zoom, column, row, x, y, side) {
    const href = this.source.url.replaceAll("{z}", zoom).replaceAll("{x}", column).replaceAll("{y}", row);
    // A little larger, so that no ground shows between two.
    return svg("image", { href, x, y, width: side + 0.5, height: side + 0.5, preserveAspectRatio: "none" });
  }
}
