// Continuous queries that the server evaluates over streams: CQELS-QL, C-SPARQL, RSP-QL.
import { element, nested, short } from "./plan.js";
import { quoted } from "./sharing.js";

const KEPT = 1000; // solutions that are shown of those that only come

/** Whether a text is a query over streams. */
export function isContinuous(text) {
  const bare = text.replace(/<[^<>\s]*>/g, "<>").replace(/"(?:[^"\\\n]|\\.)*"|#.*/g, " ");
  return /\bREGISTER\s+(QUERY|[RID]?STREAM)\b|\b(FROM|NAMED)\s+WINDOW\b|(?<![?$:\w-])STREAM(\s*[<[?$]|\s+[\w:])/i.test(bare);
}

const ESCAPES = { t: "\t", n: "\n", r: "\r", b: "\b", f: "\f" };

/** A term of N-Triples as SPARQL's JSON has it. */
export function termOf(text) {
  if (text.startsWith("<<")) return { type: "literal", value: text };
  if (text.startsWith("<")) return { type: "uri", value: text.slice(1, -1) };
  if (text.startsWith("_:")) return { type: "bnode", value: text.slice(2) };
  const end = text.lastIndexOf('"');
  const value = text.slice(1, end).replace(/\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))/g, (_, four, eight, one) =>
    one ? (ESCAPES[one] ?? one) : String.fromCodePoint(parseInt(four ?? eight, 16)));
  const rest = text.slice(end + 1);
  if (rest.startsWith("@")) {
    const [tag, direction] = rest.slice(1).split("--");
    return { type: "literal", value, "xml:lang": tag, ...(direction && { "its:dir": direction }) };
  }
  return { type: "literal", value, ...(rest.startsWith("^^") && { datatype: rest.slice(3, -1) }) };
}

const TRIPLE = ["subject", "predicate", "object"];

/** What is shown of a query's results: a table that emissions change. */
export class Emissions {
  constructor(told) {
    this.vars = told.variables ?? (told.form === "ASK" ? ["answer"] : TRIPLE);
    this.shown = [];
  }

  /** What an emission does to the rows: as an update of an answer. */
  update(told) {
    const rows = this.cells(told.result ?? told.added ?? told.removed);
    let removed = [], added = rows;
    if (told.result !== undefined) {
      const key = (cells) => JSON.stringify(this.vars.map((name) => cells[name] ?? null));
      const known = new Map();
      for (const cells of this.shown) known.set(key(cells), [...(known.get(key(cells)) ?? []), cells]);
      added = rows.filter((cells) => !known.get(key(cells))?.pop());
      removed = [...known.values()].flat();
      this.shown = rows;
    } else {
      added = rows.slice(-KEPT);
      const all = [...this.shown, ...added];
      removed = all.slice(0, Math.max(0, all.length - KEPT));
      this.shown = all.slice(removed.length);
    }
    return { vars: this.vars, added, removed, valid: added.map(() => [null, null]) };
  }

  cells(rows) {
    if (typeof rows === "boolean") return [{ answer: { type: "literal", value: String(rows) } }];
    return rows.map((row) => Object.fromEntries(
      Array.isArray(row) ? row.map((term, n) => [TRIPLE[n], termOf(term)]) : Object.entries(row).map(([name, term]) => [name, termOf(term)])));
  }
}

/** What the server calls a problem, as a line that says where it is. */
function problemOf(text) {
  try {
    const { detail, line, column } = JSON.parse(text);
    return line && !/^line \d/.test(detail) ? `line ${line}, column ${column}: ${detail}` : detail;
  } catch {
    return text;
  }
}

/** The server's continuous queries, at a path. */
export class ContinuousQueries {
  constructor(path, token) {
    this.path = path;
    this.token = token;
  }

  get headers() {
    const token = this.token();
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  async ask(path = "", options = {}) {
    const headers = { ...this.headers, ...options.headers };
    const response = await fetch(this.path + path, { cache: "no-store", ...options, headers });
    const text = await response.text();
    if (!response.ok) throw Object.assign(new Error(problemOf(text)), { status: response.status });
    return text ? JSON.parse(text) : null;
  }

  /** Registers a query; what the server knows of it. */
  register(text) {
    return this.ask("", { method: "POST", body: text, headers: { "Content-Type": "text/plain" } });
  }

  of(id) {
    return this.ask(`/${encodeURIComponent(id)}`);
  }

  stop(id) {
    return this.ask(`/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  async all() {
    return (await this.ask()).queries;
  }

  /** The query for elsewhere: what registers it, or follows it where it is registered. */
  copies(text, id) {
    const url = new URL(this.path, location.href).href;
    const results = id && new URL(this.resultsOf(id), location.href).href;
    const json = JSON.stringify;
    return results
      ? {
          curl: () => `curl -N -H 'Accept: text/event-stream' ${quoted(results)}`,
          python: () => [
            "import requests", "",
            `with requests.get(${json(results)}, headers={"Accept": "application/x-ndjson"}, stream=True) as results:`,
            "    for line in results.iter_lines():",
            "        print(line.decode())",
          ].join("\n"),
        }
      : {
          curl: () => `curl -H "Authorization: Bearer $TPF_TOKEN" -H 'Content-Type: text/plain' \\\n  --data-binary ${quoted(text)} ${quoted(url)}`,
          python: () => [
            "import os", "import requests", "",
            `headers = {"Authorization": "Bearer " + os.environ["TPF_TOKEN"], "Content-Type": "text/plain"}`,
            `made = requests.post(${json(url)}, ${json(text)}.encode(), headers=headers)`,
            `print(made.status_code, made.headers.get("Location"), made.text)`,
          ].join("\n"),
        };
  }

  resultsOf(id) {
    return `${this.path}/${encodeURIComponent(id)}/results`;
  }
}

const line = (depth, text, ...more) => {
  const item = element("li");
  item.append(text, ...more);
  return { depth, item };
};
const code = (text, prefixes) => element("code", short(text, prefixes));
const soft = (text) => element("span", text, "soft");
const rows = (count) => `${count.toLocaleString("en")} row${count === 1 ? "" : "s"}`;

/**
 * Draws the operators of a continuous query, its routes and windows, with their numbers of now.
 * @param {HTMLElement} place
 * @param {object} told as the server tells it
 * @param {[string, string][]} prefixes
 */
export function drawOperators(place, told, prefixes) {
  const lines = [];
  const deep = (text) => /^ */.exec(text)[0].length / 2;
  for (const each of told.operators ?? []) lines.push(line(deep(each), code(each.trim(), prefixes)));
  for (const window of told.windows ?? []) {
    lines.push(line(0, element("span", "window", "operator"), " ", code(`<${window.stream}> ${window.window}`, prefixes), soft(` holds ${window.elements.toLocaleString("en")}`)));
  }
  (told.joins ?? []).forEach((join, n) => {
    lines.push(line(0, element("span", `join ${n + 1}`, "operator"), soft(` routes chosen anew ${join.rerouted} times`)));
    for (const input of join.inputs) {
      lines.push(line(1, code(input.input, prefixes), soft(` ${rows(input.rows)} now; what comes here goes on to`)));
      for (const next of input.route) lines.push(line(2, code(next, prefixes)));
    }
  });
  for (const cache of told.caches ?? []) {
    lines.push(line(0, element("span", "static", "operator"), " ", code(cache.patterns, prefixes), soft(` ${rows(cache.rows)}, for ${cache.queries} queries`)));
  }
  const states = [told.language, told.semantics, told.engine, told.state, told.reason, `${told.emitted.toLocaleString("en")} emitted`, told.late ? `${told.late} late` : ""];
  place.replaceChildren(element("p", states.filter(Boolean).join(" · "), "soft"), nested(lines));
}
