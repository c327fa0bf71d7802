// Queries that this browser keeps, with their titles, newest first.
const KEY = "live queries";
const MOST = 50;

/** The title of a query: its first comment, or what it selects. */
export function titleOf(query) {
  const comment = /^[ \t]*#+[ \t]*(\S.*)/m.exec(query)?.[1].trim();
  if (comment) return comment;
  const bare = query.replace(/#.*|<[^<>\s]*>/g, " ");
  const form = /\b(SELECT|ASK|CONSTRUCT|DESCRIBE)\b/i.exec(bare)?.[1].toUpperCase() ?? "Query";
  const after = bare.slice(bare.search(/\b(SELECT|ASK|CONSTRUCT|DESCRIBE)\b/i));
  const names = [...new Set((/\?/.test(after.split("{")[0]) ? after.split("{")[0] : after).match(/\?\w+/g) ?? [])].slice(0, 4);
  return form === "SELECT" && names.length ? names.map((each) => each.slice(1)).join(", ") : [form, ...names].join(" ");
}

/** All of them: `{query, link}`. */
export function keptQueries() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]").filter((each) => typeof each?.query === "string" && typeof each?.link === "string");
  } catch {
    return []; // a browser that keeps nothing, or a frame that may not
  }
}

function put(queries) {
  try {
    localStorage.setItem(KEY, JSON.stringify(queries.slice(0, MOST)));
  } catch {
    // It goes on without.
  }
}

/** Keeps a query, with how it is looked at (the hash of its link), in place of the same one. */
export function keep(query, link) {
  put([{ query, link }, ...keptQueries().filter((each) => each.query !== query)]);
}

export function forget(query) {
  put(keptQueries().filter((each) => each.query !== query));
}
