// Terms for people. Nothing here makes markup: texts stay texts.
const NUMBER = /#(integer|decimal|double|float|int|long|short|byte|nonNegativeInteger|positiveInteger)$/;
const COMMON = {
  rdf: "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
  rdfs: "http://www.w3.org/2000/01/rdf-schema#",
  xsd: "http://www.w3.org/2001/XMLSchema#",
};
/** Prefixes that a query may be given when it needs them; those of the datasets are added. */
export const KNOWN = {
  ...COMMON,
  dcterms: "http://purl.org/dc/terms/",
  foaf: "http://xmlns.com/foaf/0.1/",
  geo: "http://www.w3.org/2003/01/geo/wgs84_pos#",
  geosparql: "http://www.opengis.net/ont/geosparql#",
  owl: "http://www.w3.org/2002/07/owl#",
  prov: "http://www.w3.org/ns/prov#",
  schema: "http://schema.org/",
  skos: "http://www.w3.org/2004/02/skos/core#",
  sosa: "http://www.w3.org/ns/sosa/",
};

/** The prefixes that a query declares. */
export function declaredIn(query) {
  const found = {};
  for (const [, name, iri] of query.matchAll(/\bPREFIX\s+([\w.-]*):\s*<([^<>\s]*)>/gi)) found[name] = iri;
  return found;
}

/** The prefixes that a query declares, and the most common ones; the longest namespaces first. */
export function prefixesOf(query) {
  const found = { ...KNOWN, ...declaredIn(query) };
  return Object.entries(found).filter(([, iri]) => iri).sort((a, b) => b[1].length - a[1].length);
}

/** A part of a triple term, of which one sees where it ends. */
function partOf(term, prefixes) {
  if (term.type !== "literal" || isNumber(term)) return textOf(term, prefixes);
  const direction = term["its:dir"] ? `--${term["its:dir"]}` : "";
  const kind = term["xml:lang"] ? `@${term["xml:lang"]}${direction}` : term.datatype ? `^^${textOf({ type: "uri", value: term.datatype }, prefixes)}` : "";
  return `${JSON.stringify(term.value)}${kind}`;
}

export function textOf(term, prefixes = []) {
  if (!term) return "";
  if (term.type === "triple") {
    const { subject, predicate, object } = term.value;
    return `<<( ${[subject, predicate, object].map((each) => partOf(each, prefixes)).join(" ")} )>>`;
  }
  if (term.type === "bnode") return `_:${term.value}`;
  if (term.type !== "uri") return term.value;
  for (const [name, iri] of prefixes) {
    if (term.value.startsWith(iri) && /^[\w./-]*$/.test(term.value.slice(iri.length))) return `${name}:${term.value.slice(iri.length)}`;
  }
  // The end of an IRI tells more than its beginning; a bare number, with what stands before it.
  const [, end] = /^https?:\/\/[^/]+.*?[/#]((?:[^/#]+[/#])?[^/#]+)[/#]?$/.exec(term.value) ?? [];
  return prefixes.length && end ? `…/${/^.*[/#]\D/.test(end) ? end.split(/[/#]/).at(-1) : end}` : term.value;
}

export function isNumber(term) {
  return NUMBER.test(term?.datatype ?? "");
}

const collator = new Intl.Collator("en", { numeric: true });
const rank = (term) => (!term ? 0 : term.type === "bnode" ? 1 : term.type === "uri" ? 2 : isNumber(term) ? 3 : 4);

/** Which of two terms comes first, as numbers or by their texts; what has no value comes before all. */
export function compare(one, other) {
  const ranks = rank(one) - rank(other);
  if (ranks || !one) return ranks;
  if (isNumber(one)) return Number(one.value) - Number(other.value) || 0;
  return collator.compare(textOf(one), textOf(other));
}

/** The columns that name others, by the patterns of a plan: with `?train rdfs:label ?name`, of train it is name. */
export function labelsIn(steps) {
  const found = {};
  for (const { pattern } of steps) {
    const [, thing, name] = /^\?(\w+) <[^<>]*[#/](?:label|name|prefLabel|title)> \?(\w+)/.exec(pattern) ?? [];
    if (thing) found[thing] ??= name;
  }
  return found;
}

/** The milliseconds of an instant with a time zone; NaN: it is none. */
export const instantOf = (term) => (/#dateTime(Stamp)?$/.test(term?.datatype ?? "") && /(Z|[+-]\d\d:\d\d)$/.test(term.value) ? Date.parse(term.value) : NaN);

/** An instant in UTC, without its day if that is today's. */
export function utcOf(milliseconds, now = Date.now()) {
  const [day, hour] = new Date(milliseconds).toISOString().split("T");
  const time = hour.slice(0, hour.endsWith(":00.000Z") ? 5 : 8);
  return day === new Date(now).toISOString().slice(0, 10) ? `${time} UTC` : `${day} ${time} UTC`;
}

/** The same instant where the reader is; empty where that is UTC, and where there is none. */
export function localOf(milliseconds) {
  if (Number.isNaN(milliseconds)) return "";
  const then = new Date(milliseconds);
  return then.getTimezoneOffset() ? `${then.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" })} here` : "";
}

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const UNITS = [["second", 60], ["minute", 60], ["hour", 48], ["day", 60], ["month", 24], ["year", Infinity]];

/** How long ago an instant was, or how far it is. */
export function agoOf(milliseconds, now) {
  let left = (milliseconds - now) / 1000;
  for (const [unit, many] of UNITS) {
    if (Math.abs(left) < many) return relative.format(Math.round(left), unit);
    left /= unit === "day" ? 30 : unit === "month" ? 12 : unit === "hour" ? 24 : 60;
  }
}

function linkTo(href, text) {
  const link = document.createElement("a");
  link.href = href;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  link.dir = "auto";
  link.textContent = text;
  return link;
}

/**
 * A cell's content: for an IRI its label or short form as a link to what a dataset has about it, and a link to the
 * IRI itself; an instant with how far it is; else a text.
 */
export function nodeOf(term, prefixes, dataset, label) {
  const text = label ?? textOf(term, prefixes);
  const instant = instantOf(term);
  if (!Number.isNaN(instant)) {
    const both = document.createDocumentFragment();
    const time = Object.assign(document.createElement("time"), { dateTime: term.value, textContent: utcOf(instant) });
    const ago = Object.assign(document.createElement("span"), { className: "soft ago", textContent: agoOf(instant, Date.now()) });
    ago.instant = instant;
    both.append(time, " ", ago);
    return both;
  }
  if (term?.type === "literal" && !term.datatype) {
    const said = document.createElement("span");
    if (term["xml:lang"]) said.lang = term["xml:lang"];
    // A text whose direction nobody tells is read by its letters.
    said.dir = term["its:dir"] ?? "auto";
    said.textContent = text;
    return said;
  }
  if (term?.type !== "uri" || !/^https?:\/\//i.test(term.value)) return document.createTextNode(text);
  if (!dataset) return linkTo(term.value, text);
  const both = document.createDocumentFragment();
  const out = linkTo(term.value, "");
  out.className = "out";
  out.setAttribute("aria-label", `open ${term.value}`);
  both.append(linkTo(`${dataset}?subject=${encodeURIComponent(term.value)}`, text), out);
  return both;
}

export function fullTextOf(term) {
  if (!term || typeof term.value !== "string") return textOf(term);
  if (term["xml:lang"]) {
    return `${term.value} @${term["xml:lang"]}${term["its:dir"] ? `--${term["its:dir"]}` : ""}`;
  }
  return term.datatype ? `${term.value} (${term.datatype})` : term.value;
}
