// The table: draws the rows that are in sight, and changes only what changed. On a phone each row is a card.
import { agoOf, fullTextOf, instantOf, isNumber, localOf, nodeOf, textOf, utcOf } from "./terms.js";

const BEYOND = 10; // rows drawn above and below what is in sight
const HEIGHT = 32; // pixels of a row,
const LINE = 24; // of a line of a card,
const AROUND = 24; // and around these
const MEASURED = 200; // rows by which columns get their widths
const WIDEST = 44; // characters of a column
const ON_CARD = 5; // columns that a card shows

const narrow = matchMedia("(max-width: 40rem)");

/** The columns that say most, first: a name, numbers and instants, things, and what another column names. */
function mattering(vars, rows, named, labels) {
  const rank = (name) => {
    const term = rows.find((row) => row.cells[name])?.cells[name];
    if (!term || named[name]) return 4;
    if (term.type === "uri") return labels.get(term.value) ? 0 : 3;
    return isNumber(term) || !Number.isNaN(instantOf(term)) ? 2 : 1;
  };
  // The longest text is more of a name than a code is.
  const long = (name) => Math.max(...rows.slice(0, 20).map((row) => (row.cells[name]?.type === "literal" ? row.cells[name].value.length : 0)));
  const ranked = vars.map((name, n) => [rank(name), n, name]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (ranked[0]?.[0] === 1) ranked.unshift(ranked.filter((each) => each[0] === 1).sort((a, b) => long(b[2]) - long(a[2]))[0]);
  // Numbers alone would say of what they are only below.
  const things = ranked[0]?.[0] > 1 ? ranked.filter((each) => each[0] === 3) : [];
  return [...new Set([...things.slice(0, 1), ...ranked].map((each) => each[2]))].slice(0, ON_CARD);
}

export class Table {
  /**
   * @param {HTMLElement} scroll what scrolls
   * @param {HTMLTableElement} table in it
   * @param {{sorted: () => void, chosen: (row: object) => void, seen: (iris: string[]) => void}} does
   *   called when another order is wanted, when a row is opened, and with the IRIs that are in sight
   */
  constructor(scroll, table, does) {
    this.does = does;
    this.order = null; // the column by which rows are sorted, and whether downwards
    this.scroll = scroll;
    this.table = table;
    this.head = table.tHead;
    this.body = table.tBodies[0];
    this.columns = table.querySelector("colgroup");
    this.drawn = new Map();
    this.rows = [];
    this.vars = null;
    this.named = {}; // the columns that name others
    this.labels = new Map(); // of IRIs
    this.dataset = null; // where its IRIs are described
    this.above = space();
    this.below = space();
    scroll.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroll);
    narrow.addEventListener("change", () => this.again());
    this.body.addEventListener("click", ({ target }) => {
      const line = target.closest("tr.row");
      if (line && !target.closest("a") && getSelection().isCollapsed) this.open(line);
    });
    scroll.addEventListener("keydown", (event) => this.key(event));
  }

  open(line) {
    for (const [row, each] of this.drawn) if (each === line) this.does.chosen(row);
  }

  /** Up and down walk through the rows, Enter opens one. */
  key(event) {
    const line = event.target.closest("tr.row");
    if (event.key === "Enter" && line === event.target) this.open(line);
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const next = line ? line[event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling"] : this.body.querySelector("tr.row");
    if (!next?.matches("tr.row")) return;
    event.preventDefault();
    next.focus();
  }

  /** Which columns name others, for the titles of their cells. */
  name(named) {
    if (JSON.stringify(named) === JSON.stringify(this.named)) return;
    this.named = named;
    this.again();
  }

  /** Draws all anew. */
  again() {
    this.drawn.clear();
    this.body.replaceChildren();
    this.measured = 0;
    this.draw();
  }

  show(vars, rows, prefixes) {
    this.rows = rows;
    const columns = vars.join(" ");
    const names = prefixes.map((each) => each.join()).join(" ");
    if (columns !== this.shown || names !== this.names) {
      this.shown = columns;
      this.names = names;
      this.vars = vars;
      this.prefixes = prefixes;
      this.drawn.clear();
      this.body.replaceChildren();
      this.measured = 0;
      const line = document.createElement("tr");
      for (const name of vars) line.append(this.headCell(name));
      const until = document.createElement("th");
      until.scope = "col";
      until.textContent = "holds";
      until.className = "until";
      line.append(until);
      this.head.replaceChildren(line);
      if (vars.length && this.order && !vars.includes(this.order.name)) this.order = null;
      this.showOrder();
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
      this.does.sorted();
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

  /** Gives each column the width of what most of its cells hold. */
  measure() {
    if (this.measured >= Math.min(this.rows.length, MEASURED)) return;
    this.measured = this.rows.length;
    const some = this.rows.slice(0, MEASURED);
    const widths = this.vars.map((name) => {
      const lengths = some.map((row) => this.textOf(row.cells[name]).length).sort((a, b) => a - b);
      const most = lengths[Math.floor(lengths.length * 0.95)] ?? 0;
      return Math.min(Math.max(most, name.length + 2, 4), WIDEST) + 3;
    });
    this.columns.replaceChildren(...[...widths, 9].map((width) => {
      const column = document.createElement("col");
      column.style.width = `${width}ch`;
      return column;
    }));
    const sum = widths.reduce((all, each) => all + each, 9);
    this.table.style.minWidth = `${sum}ch`;
    this.table.style.width = `min(100%, ${1.5 * sum}ch)`;
    const first = mattering(this.vars, some, this.named, this.labels);
    this.cards = first;
    this.cardHeight = AROUND + LINE * (1 + Math.ceil((first.length - 1) / 2));
    this.table.style.setProperty("--card", `${this.cardHeight}px`);
  }

  /** What a cell shows. */
  textOf(term) {
    const instant = instantOf(term);
    return Number.isNaN(instant) ? this.labels.get(term?.value) ?? textOf(term, this.prefixes) : `${utcOf(instant)} ${agoOf(instant, Date.now())}`;
  }

  draw() {
    if (!this.vars || this.scroll.closest("[hidden]")) return;
    this.measure();
    const height = narrow.matches && this.rows.length ? this.cardHeight : HEIGHT;
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
    this.see();
  }

  /** Tells which IRIs are in sight that have no label yet. */
  see() {
    const iris = new Set();
    for (const row of this.drawn.keys()) {
      for (const name of this.vars) {
        const term = row.cells[name];
        if (term?.type === "uri" && !this.named[name] && !this.labels.has(term.value)) iris.add(term.value);
      }
    }
    if (iris.size) this.does.seen([...iris]);
  }

  makeLine() {
    const line = document.createElement("tr");
    line.setAttribute("role", "row");
    line.tabIndex = -1;
    for (const name of this.vars) {
      const cell = document.createElement("td");
      cell.setAttribute("role", "cell");
      const order = this.cards.indexOf(name);
      cell.dataset.name = name;
      cell.dataset.order = order;
      cell.style.order = order;
      line.append(cell);
    }
    const until = document.createElement("td");
    until.setAttribute("role", "cell");
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
      const label = this.labels.get(term?.value);
      const full = `${label ?? ""}\n${fullTextOf(term)}`;
      if (cell.full !== full) {
        cell.full = full;
        const named = label ?? row.cells[this.named[name]]?.value ?? localOf(instantOf(term));
        cell.title = named ? `${named}\n${fullTextOf(term)}` : fullTextOf(term);
        cell.replaceChildren(nodeOf(term, this.prefixes, this.dataset, label));
      }
      const changed = row.kind === "changed" && row.columns.has(name);
      cell.className = [isNumber(term) && "number", changed && "changed"].filter(Boolean).join(" ");
    });
  }

  /** Runs the bars down: `now` on the server's clock, `least` until when all rows hold at least. */
  run(now, least) {
    for (const [row, line] of this.drawn) {
      for (const ago of line.querySelectorAll(".ago")) {
        const text = agoOf(ago.instant, now);
        if (ago.textContent !== text) ago.textContent = text;
      }
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
