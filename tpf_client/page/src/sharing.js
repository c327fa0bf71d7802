// The query for elsewhere: links, commands, programs, files.
import { textOf } from "./terms.js";

/** A text as a word of a shell. */
export const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Settings of a query that were set: `max-interval` and `grace`, in seconds. */
const setOf = (settings) => Object.entries(settings ?? {}).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((each) => [name, each])).filter(([, value]) => value);

export function endpointOf(query, settings) {
  const parameters = new URLSearchParams([["query", query], ...setOf(settings)]);
  return `${new URL("sparql", location.href.split("#")[0])}?${parameters}`;
}

/** Where an answer is followed: with its plan. */
export function streamOf(query, settings) {
  return `${endpointOf(query, settings)}&explain=true`;
}

export function linkOf(query, settings) {
  const parameters = new URLSearchParams([["query", query], ...setOf(settings)]);
  return `${location.href.split("#")[0]}#${parameters}`;
}

/** The same, as the board alone: for a frame, or a screen on a wall. */
export function embedOf(query, settings) {
  const url = new URL(linkOf(query, settings));
  url.search = `?${["embed", url.search.slice(1)].filter(Boolean).join("&")}`;
  const text = url.href.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  return `<iframe src="${text}" title="Live query" width="100%" height="480"></iframe>`;
}

export function curlOf(query, settings) {
  const url = new URL("sparql", location.href.split("#")[0]);
  const more = setOf(settings).map(([name, value]) => ` \\\n  --data-urlencode ${name}=${value}`).join("");
  return `curl -N -G -H 'Accept: text/event-stream' ${quoted(url.href)}${more} \\\n  --data-urlencode ${quoted(`query=${query}`)}`;
}

export function pythonOf(query, settings, datasets) {
  const more = setOf(settings).map(([name, value]) => `, ${name.replace("-", "_")}=${Number(value)}`).join("");
  return [
    "from tpf_client import Client",
    "",
    `with Client(${datasets.map((each) => JSON.stringify(each)).join(", ")}) as client:`,
    `    for update in client.stream(${JSON.stringify(query)}${more}):`,
    "        print(update.at, update.added, update.removed, update.valid_until)",
  ].join("\n");
}

export function commandOf(query, settings, datasets) {
  const more = setOf(settings).map(([name, value]) => ` --${name} ${value}`).join("");
  return `tpf-query ${datasets.map(quoted).join(" ")} --watch${more} -q ${quoted(query)}`;
}

// What a spreadsheet would compute; numbers with a sign are none.
const FORMULA = /^[=+\-@\t\r](?!(?<=[+-])[\d.]+(?:[eE][+-]?\d+)?$)/;

/** Rows for spreadsheets: a text that would be a formula has an apostrophe before it. JSON holds the terms as they are. */
export function csvOf(vars, rows) {
  const safe = (text) => (FORMULA.test(text) ? `'${text}` : text);
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [vars, ...rows.map((cells) => vars.map((name) => safe(textOf(cells[name]))))];
  return lines.map((line) => line.map(cell).join(",") + "\r\n").join("");
}

export function jsonOf(vars, rows) {
  return JSON.stringify({ head: { vars }, results: { bindings: rows } }, null, 1);
}

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
