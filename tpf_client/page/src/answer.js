// The answer as it is shown: rows keep their place, and know what just happened to them.
import { compare, textOf } from "./terms.js";

const SHOWN = 2500; // milliseconds for which a change is marked
const MOST_PAIRS = 250_000;
const ALIKE = 4; // removed rows with one sign that an added one is compared with, where there are many

let numbers = 0;

class Row {
  constructor(cells, key, span) {
    this.id = ++numbers;
    this.set(cells, key, span);
  }

  set(cells, key, span) {
    this.cells = cells;
    this.key = key;
    this.late = false;
    this.anchor = null;
    [this.from, this.until] = (span ?? [null, null]).map((each) => (each ? Date.parse(each) : null));
    this.version = (this.version ?? 0) + 1;
  }

  happened(kind, columns = null) {
    this.kind = kind;
    this.columns = columns;
    this.when = performance.now();
    this.version += 1;
  }
}

export class Answer {
  constructor() {
    this.vars = [];
    this.live = [];
    this.ghosts = [];
  }

  keyOf(cells) {
    return JSON.stringify(this.vars.map((name) => cells[name] ?? null));
  }

  /** The whole answer, in place of what was known; tells how it differs, as `update` does. */
  begin(told) {
    if (told.vars.join(" ") !== this.vars.join(" ")) {
      this.vars = told.vars;
      this.live = [];
      this.ghosts = [];
    }
    if (!this.live.length) {
      this.live = told.added.map((cells, n) => new Row(cells, this.keyOf(cells), told.valid[n]));
      return { added: this.live.length, changed: 0, removed: 0 };
    }
    // After an interruption: what is still there is no news.
    const known = new Map();
    for (const row of this.live) known.set(row.key, [...(known.get(row.key) ?? []), row]);
    const added = [], valid = [], places = [], kept = [];
    told.added.forEach((cells, place) => {
      const row = known.get(this.keyOf(cells))?.pop();
      if (row) {
        row.set(cells, row.key, told.valid[place]);
        kept.push(row);
      } else {
        added.push(cells);
        valid.push(told.valid[place]);
        places.push(place);
      }
    });
    const over = [...known.values()].flat();
    // Those that stay stand in the order of the new answer.
    if (told.places) this.live = [...kept, ...over];
    return this.update({ added, valid, removed: over.map((row) => row.cells), places: told.places && places });
  }

  /** Rows that come while an answer is read: all are new, and none is marked. */
  append(told) {
    this.vars = told.vars;
    told.added.forEach((cells, n) => {
      const row = new Row(cells, this.keyOf(cells), told.valid?.[n]);
      if (told.places) this.live.splice(told.places[n], 0, row);
      else this.live.push(row);
    });
  }

  /** What changed; returns how many rows were added, changed and removed. */
  update(told) {
    const taken = new Map();
    for (const cells of told.removed) {
      const key = this.keyOf(cells);
      taken.set(key, (taken.get(key) ?? 0) + 1);
    }
    const gone = [];
    let before = null;
    const anchors = new Map();
    const live = [];
    for (const row of this.live) {
      const count = taken.get(row.key) ?? 0;
      if (count) {
        taken.set(row.key, count - 1);
        gone.push(row);
        anchors.set(row, before);
        if (!told.places) live.push(row);
      } else {
        live.push(row);
      }
      before = row;
    }
    const pairs = this.pairs(told.added, gone);
    const fresh = [];
    const replaced = new Set();
    const placed = new Map();
    told.added.forEach((cells, n) => {
      const old = pairs.get(n);
      let row = old;
      if (old) {
        replaced.add(old);
        const columns = new Set(this.vars.filter((name) => JSON.stringify(cells[name]) !== JSON.stringify(old.cells[name])));
        old.set(cells, this.keyOf(cells), told.valid[n]);
        old.happened("changed", columns);
      } else {
        row = new Row(cells, this.keyOf(cells), told.valid[n]);
        row.happened("new");
      }
      if (told.places) placed.set(told.places[n], row);
      else if (!old) fresh.push(row);
    });
    const over = new Set(gone.filter((row) => !replaced.has(row)));
    for (const row of over) {
      row.happened("gone");
      row.anchor = anchors.get(row);
      this.ghosts.push(row);
    }
    if (told.places) {
      // Each is inserted at its place in what those before it have made: that is its place in the end.
      let kept = 0;
      this.live = Array.from({ length: live.length + placed.size }, (_, n) => placed.get(n) ?? live[kept++]);
    } else this.live = [...live.filter((row) => !over.has(row)), ...fresh];
    return { added: told.added.length - replaced.size, changed: replaced.size, removed: over.size };
  }

  /**
   * Which added row is which removed one, changed: those that agree in most cells, or in what they
   * name first; of these, those that agree in the left ones. Where there are too many to compare
   * each with each, those that agree in all cells but one, or in what they name first.
   */
  pairs(added, gone) {
    const texts = (cells) => this.vars.map((name) => JSON.stringify(cells[name]));
    const olds = gone.map((row) => texts(row.cells));
    const found = [];
    const compare = (n, cells, m) => {
      const same = cells.map((text, column) => +(text === olds[m][column]));
      const sum = same.reduce((a, b) => a + b, 0);
      const named = same[0] && added[n][this.vars[0]]?.type === "uri";
      if (2 * sum >= this.vars.length || named) found.push([sum, same.join(""), n, gone[m]]);
    };
    if (added.length * gone.length <= MOST_PAIRS) {
      added.forEach((cells, n) => {
        const mine = texts(cells);
        gone.forEach((_, m) => compare(n, mine, m));
      });
    } else {
      const signs = (all) => [all[0], ...all.map((_, left) => JSON.stringify(all.filter((_, n) => n !== left)) + left)];
      const by = new Map();
      olds.forEach((all, m) => signs(all).forEach((sign) => by.set(sign, [...(by.get(sign) ?? []), m].slice(-ALIKE))));
      added.forEach((cells, n) => {
        const mine = texts(cells);
        for (const m of new Set(signs(mine).flatMap((sign) => by.get(sign) ?? []))) compare(n, mine, m);
      });
    }
    found.sort((a, b) => b[0] - a[0] || (a[1] < b[1] ? 1 : a[1] > b[1] ? -1 : 0));
    const result = new Map();
    const used = new Set();
    for (const [, , n, row] of found) {
      if (result.has(n) || used.has(row)) continue;
      result.set(n, row);
      used.add(row);
    }
    return result;
  }

  /** Forget marks that were shown for long enough; whether any were. */
  settle() {
    const now = performance.now();
    let some = false;
    this.ghosts = this.ghosts.filter((row) => {
      const stays = now - row.when < SHOWN;
      some ||= !stays;
      return stays;
    });
    for (const row of this.live) {
      if (row.kind && now - row.when >= SHOWN) {
        row.kind = null;
        row.version += 1;
        some = true;
      }
    }
    return some;
  }

  /** Which rows were not renewed in time and are there by grace alone. */
  late(those) {
    const counts = new Map();
    for (const cells of those) {
      const key = this.keyOf(cells);
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    for (const row of this.live) {
      const count = counts.get(row.key) ?? 0;
      if (count) counts.set(row.key, count - 1);
      if (row.late !== count > 0) {
        row.late = count > 0;
        row.version += 1;
      }
    }
  }

  /**
   * The rows to show, those that are gone after what they followed.
   * @param {string} wanted what must occur in one of the cells, or in its label
   * @param {(term: object) => string | undefined} labelOf
   * @param {{name: string, down: boolean} | null} order by which column they are sorted
   */
  rows(wanted, order, labelOf = () => undefined) {
    let shown = this.placed();
    if (wanted) {
      const low = wanted.toLowerCase();
      shown = shown.filter((row) => this.vars.some((name) => `${textOf(row.cells[name])} ${labelOf(row.cells[name]) ?? ""}`.toLowerCase().includes(low)));
    }
    if (order && this.vars.includes(order.name)) {
      const sign = order.down ? -1 : 1;
      shown.sort((one, other) => sign * compare(one.cells[order.name], other.cells[order.name]));
    }
    return shown;
  }

  placed() {
    const after = new Map();
    const live = new Set(this.ghosts.length ? this.live : []);
    for (const row of this.ghosts) {
      // The way to what is left is walked once, also where many rows went one after the other.
      let place = row.anchor;
      while (place && !live.has(place)) place = place.anchor ?? null;
      for (let each = row; each.anchor && each.anchor !== place; ) {
        const next = each.anchor;
        each.anchor = place;
        each = next;
      }
      if (after.has(place)) after.get(place).push(row);
      else after.set(place, [row]);
    }
    const all = [...(after.get(null) ?? [])];
    for (const row of this.live) all.push(row, ...(after.get(row) ?? []));
    return all;
  }
}
