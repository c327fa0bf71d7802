// Tells when a row meets a condition: "?delay > 600".
const CONDITION = /^\s*[?$](\w+)\s*(>=|<=|!=|=|>|<|contains)\s*(.+?)\s*$/i;
const MOST = 5; // rows that one message names

const TESTS = {
  ">": (one, other) => one > other,
  "<": (one, other) => one < other,
  ">=": (one, other) => one >= other,
  "<=": (one, other) => one <= other,
  "=": (one, other) => one === other,
  "!=": (one, other) => one !== other,
};

/** A condition as a function of the cells of a row; an error says what it should be. */
export function conditionOf(text) {
  const [, name, operator, given] = CONDITION.exec(text) ?? [];
  if (!name) throw new Error(`not a condition like ?delay > 600: ${text}`);
  const value = given.replace(/^(["'])(.*)\1$/, "$2");
  if (operator.toLowerCase() === "contains") return { name, holds: (cells) => cells[name]?.value.toString().toLowerCase().includes(value.toLowerCase()) ?? false };
  const test = TESTS[operator];
  const number = given === value && value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : null;
  return {
    name,
    holds(cells) {
      const term = cells[name];
      if (!term) return false;
      return number === null ? test(term.value, value) : !Number.isNaN(Number(term.value)) && test(Number(term.value), number);
    },
  };
}

export class Alert {
  /** @param {(text: string) => void} show says it on the page, also where notifications are not allowed */
  constructor(show) {
    this.show = show;
    this.text = "";
    this.condition = null;
    this.met = new Set();
  }

  /** Has another condition from now on; empty: none. The rows that meet it now are told, too. */
  set(text) {
    this.condition = text.trim() ? conditionOf(text) : null;
    this.text = text.trim();
    this.met = new Set();
  }

  /** Asks whether notifications may be sent: only when a person has just pressed something. */
  async allow() {
    if (typeof Notification === "function" && Notification.permission === "default") await Notification.requestPermission();
  }

  /**
   * Looks at the rows as they are.
   * @param {object[]} rows
   * @param {(row: object) => string} lineOf a row as a line of text
   */
  look(rows, lineOf) {
    if (!this.condition) return;
    const met = rows.filter((row) => this.condition.holds(row.cells));
    const news = met.filter((row) => !this.met.has(row.id));
    this.met = new Set(met.map((row) => row.id));
    if (!news.length) return;
    const more = news.length > MOST ? `\n… and ${news.length - MOST} more` : "";
    const text = `${this.text}\n${news.slice(0, MOST).map(lineOf).join("\n")}${more}`;
    this.show(text);
    if (typeof Notification === "function" && Notification.permission === "granted") {
      try {
        new Notification(document.title, { body: text, tag: this.text });
      } catch {
        // On phones only a service worker may; the page has said it.
      }
    }
  }
}
