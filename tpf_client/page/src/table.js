// The table: draws the rows that are in sight, and changes only what changed.
import { fullTextOf, isNumber, nodeOf } from "./terms.js";

const BEYOND = 10; // rows drawn above and below what is in sight

export class Table {
  /**
   * @param {HTMLElement} scroll what scrolls
   * @param {HTMLTableElement} table in it
   * @param {() => void} sorted called when another order is wanted
   */
  constructor(scroll, table, sorted) {
    this.sorted = sorted;
    this.order = null; // the column by which rows are sorted, and whether downwards
    this.scroll = scroll;
    this.table = table;
    this.head = table.tHead;
    this.body = table.tBodies[0];
    this.drawn = new Map();
    this.rows = [];
    this.vars = null;
    this.labels = {};
    this.dataset = null; // where its IRIs are described
    this.above = space();
    this.below = space();
    scroll.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroll);
  }

  /** Which columns name others, for the titles of their cells. */
  label(labels) {
    if (JSON.stringify(labels) === JSON.stringify(this.labels)) return;
    this.labels = labels;
    this.drawn.clear();
    this.draw();
  }

  show(vars, rows, prefixes) {
    this.rows = rows;
    const columns = vars.join(" ");
    const names = prefixes.map((each) => each.join()).join(" ");
    if (columns !== this.columns || names !== this.names) {
      this.columns = columns;
      this.names = names;
      this.vars = vars;
      this.prefixes = prefixes;
      this.drawn.clear();
      this.body.replaceChildren();
      const line = document.createElement("tr");
      for (const name of vars) line.append(this.headCell(name));
      const until = document.createElement("th");
      until.scope = "col";
      until.textContent = "valid";
      until.className = "until";
      line.append(until);
      this.head.replaceChildren(line);
      if (this.order && !vars.includes(this.order.name)) this.order = null;
      this.showOrder();
      this.table.style.minWidth = `${vars.length * (vars.length > 3 ? 7 : 5.5) + 5}rem`;
    }
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.draw();
  }

  /** The head of a column: a button that sorts by it, up, down and not at all. */
  headCell(name) {
    const cell = document.createElement("th");
    cell.scope = "col";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => {
      const before = this.order?.name === name ? this.order : null;
      this.order = before === null ? { name, down: false } : before.down ? null : { name, down: true };
      this.showOrder();
      this.sorted();
    });
    cell.append(button);
    return cell;
  }

  showOrder() {
    for (const cell of this.head.querySelectorAll("th:not(.until)")) {
      const name = cell.firstChild.textContent;
      if (name === this.order?.name) cell.setAttribute("aria-sort", this.order.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  draw() {
    if (!this.vars) return;
    const height = this.rowHeight();
    const tall = this.scroll.clientHeight;
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / height) - BEYOND);
    const last = Math.min(this.rows.length, Math.ceil((this.scroll.scrollTop + tall) / height) + BEYOND);
    const wanted = [];
    for (let n = first; n < last; n++) {
      const row = this.rows[n];
      let line = this.drawn.get(row);
      if (!line) this.drawn.set(row, (line = this.makeLine()));
      if (line.version !== row.version) this.fill(line, row);
      line.setAttribute("aria-rowindex", String(n + 2));
      wanted.push(line);
    }
    const keep = new Set(wanted);
    for (const [row, line] of this.drawn) {
      if (!keep.has(line)) this.drawn.delete(row);
    }
    // The head of numbers stands above them.
    const heads = this.head.rows[0].cells;
    if (wanted.length) this.vars.forEach((_, n) => heads[n].classList.toggle("number", wanted[0].cells[n].classList.contains("number")));
    size(this.above, first * height);
    size(this.below, (this.rows.length - last) * height);
    place(this.body, [this.above, ...wanted, this.below]);
    // It was empty and is full again within a frame: no observer tells that it had another size.
    if (last < this.rows.length && this.scroll.clientHeight > tall) this.draw();
  }

  rowHeight() {
    return parseFloat(getComputedStyle(document.documentElement).fontSize) * 2;
  }

  makeLine() {
    const line = document.createElement("tr");
    for (const _ of this.vars) line.append(document.createElement("td"));
    const until = document.createElement("td");
    until.className = "until";
    const bar = document.createElement("div");
    bar.className = "bar";
    bar.append(document.createElement("span"));
    until.append(bar);
    line.append(until);
    return line;
  }

  fill(line, row) {
    line.version = row.version;
    line.className = ["row", row.late && "late", row.kind !== "changed" && row.kind].filter(Boolean).join(" ");
    this.vars.forEach((name, n) => {
      const term = row.cells[name];
      const cell = line.cells[n];
      const full = fullTextOf(term);
      if (cell.full !== full) {
        cell.full = full;
        const label = row.cells[this.labels[name]];
        cell.title = label ? `${label.value}\n${full}` : full;
        cell.replaceChildren(nodeOf(term, this.prefixes, this.dataset));
      }
      const changed = row.kind === "changed" && row.columns.has(name);
      cell.className = [isNumber(term) && "number", changed && "changed"].filter(Boolean).join(" ");
    });
  }

  /** Runs the bars down: `now` on the server's clock, `least` until when all rows hold at least. */
  run(now, least) {
    for (const [row, line] of this.drawn) {
      const bar = line.cells[this.vars.length].firstChild;
      if (row.late) {
        bar.hidden = false;
        bar.firstChild.style.transform = bar.scale = "scaleX(0)";
        bar.title = "late: not renewed in time";
        continue;
      }
      const until = row.until === null && least === null ? null : Math.max(row.until ?? 0, row.until === null ? 0 : least ?? 0);
      bar.hidden = until === null || until === 0 || row.kind === "gone";
      if (bar.hidden) continue;
      if (row.whole === undefined || row.barOf !== until) {
        row.barOf = until;
        row.whole = Math.max(until - now, 1);
      }
      const left = Math.max(until - now, 0);
      // A bar is some 70 pixels wide: nothing is drawn for what nobody would see.
      const scale = `scaleX(${Math.round(Math.min(left / row.whole, 1) * 100) / 100})`;
      const drawn = bar.scale === scale;
      if (drawn && !line.matches(":hover")) continue;
      bar.title = `at least ${Math.ceil(left / 1000)} s more`;
      if (!drawn) bar.firstChild.style.transform = bar.scale = scale;
    }
  }
}

function space() {
  const line = document.createElement("tr");
  line.className = "space";
  line.setAttribute("aria-hidden", "true");
  line.append(document.createElement("td"));
  return line;
}

function size(line, pixels) {
  line.hidden = pixels <= 0;
  line.firstChild.style.height = `${pixels}px`;
}

/** Makes these the children, moving as few as possible. */
function place(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  let next = parent.firstChild;
  for (const child of wanted) {
    if (child === next) next = next.nextSibling;
    else parent.insertBefore(child, next);
  }
}
