// The page: an editor, an answer that keeps itself true, and how long it is.
import { Answer } from "./answer.js";
import { Chart, numeric } from "./chart.js";
import { ContinuousQueries, Emissions, drawOperators, isContinuous } from "./continuous.js";
import { makeEditor } from "./editor.js";
import { EndpointEngine } from "./endpoint.js";
import { follow } from "./events.js";
import { PointMap, coordinates } from "./map.js";
import { travel } from "./past.js";
import { drawPlan } from "./plan.js";
import { commandOf, csvOf, curlOf, jsonOf, linkOf, pythonOf, save } from "./sharing.js";
import { TabEngine, whyNot } from "./tab.js";
import { Table } from "./table.js";
import { labelsIn, prefixesOf } from "./terms.js";

const at = (id) => document.getElementById(id);
const FIRST = "SELECT * WHERE {\n  ?subject ?predicate ?object\n}\nLIMIT 100";
const SAID = 5000;
const LOOK = 2000;
const LATE = 1500; // milliseconds after which an answer that is not renewed is late,
const BAD = 10_000; // and after which that is a failure
const EXAMPLES = [
  { title: "Some facts", query: FIRST },
  { title: "What kinds of things there are", query: "SELECT DISTINCT ?kind WHERE {\n  ?thing a ?kind\n}\nLIMIT 50" },
  { title: "What things are called", query: "PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>\nSELECT ?thing ?name WHERE {\n  ?thing rdfs:label ?name\n}\nLIMIT 50" },
];

const editor = makeEditor(at("editor"), () => watch(), () => editor.mark());
const table = new Table(at("scroll"), at("table"), () => {
  show();
  remember();
});
const map = new PointMap(at("map"));
const chart = new Chart(at("chart"));
let answer = new Answer();
let datasets = [];
let query = "";
let stop = null;
let clock = 0; // the server's, less ours
let least = null; // until when all holds at least
let next = null;
let lastSaid = 0;
let unsaid = null;
let plan = null;
let streams = null; // the continuous queries of the server, where it has some
let hosted = null; // the one that is followed, as the server tells it
let looked = 0;
// What evaluates queries: an endpoint, or a worker of this browser, which is started first of all.
let engine = whyNot() ? null : new TabEngine(() => datasets, (told) => progress(told));
let served = []; // the datasets of whoever serves this page
let due = null; // what the last evaluation has said: the answer is looked at again by then
let failed = ""; // why the last evaluation gave nothing
let asking = null; // stops the query that is answered once

function state(kind, text) {
  const shown = at("state");
  if (shown.textContent === text && shown.dataset.kind === kind) return;
  // Seconds that go by are no news for who listens.
  if (kind !== shown.dataset.kind && kind !== "due" && !(kind === "live" && shown.dataset.kind === "due")) at("said").textContent = text;
  shown.dataset.kind = kind;
  shown.textContent = text;
  at("table").classList.toggle("late", kind === "late" || kind === "bad");
}

function problem(text) {
  at("problem").textContent = text;
  const place = /^line (\d+), column (\d+): (.*)/.exec(text);
  if (place) editor.mark(place[3], Number(place[1]), Number(place[2]));
  else editor.mark();
}

const time = (instant) =>
  instant === null ? "always" : new Date(instant).toISOString().replace(/^(\d+-\d+-\d+)T(.*?)(\.\d+)?Z$/, (_, day, hour) =>
    day === new Date().toISOString().slice(0, 10) ? `${hour} UTC` : `${day} ${hour} UTC`);

function draw() {
  const rows = answer.rows(at("filter").value, table.order);
  table.show(answer.vars, rows, prefixesOf(query));
  drawMap(rows);
}

function drawMap(rows) {
  if (!answer.vars.length) return;
  const read = coordinates(answer.vars, rows);
  // It stays while a filter leaves no rows.
  if (read || !answer.live.length) at("map").hidden = !read;
  if (read && at("map").open) map.show(answer.vars, rows, read, prefixesOf(query));
}

/** Takes the present numbers into the chart. */
function note() {
  const columns = numeric(answer.vars, answer.live);
  const select = at("column");
  if ([...select.options].map((each) => each.value).join(" ") !== columns.join(" ")) {
    const chosen = select.value;
    select.replaceChildren(...columns.map((name) => new Option(name, name)));
    const place = /^(lat|latitude|lng|long?|longitude)$/i; // which changes least
    const first = columns.findLast((name) => !place.test(name)) ?? columns.at(-1) ?? "";
    select.value = columns.includes(chosen) ? chosen : first;
  }
  at("chart").hidden = !columns.length;
  if (columns.length) chart.note(select.value, answer.live, Date.now() + clock);
  if (at("chart").open) chart.draw();
}

function showPlan() {
  at("plan").hidden = plan === null && hosted === null;
  if (hosted && at("plan").open) drawOperators(at("steps"), hosted, prefixesOf(query));
  if (plan && at("plan").open) drawPlan(at("steps"), plan, prefixesOf(query));
}

function show() {
  draw();
  tick();
}

/** What is set beside the query, as the endpoint names it. */
const settings = () => ({ "max-interval": at("interval").value, grace: at("grace").value });

/** What a link holds beside the query: also how the answer is looked at. */
const viewed = () => ({
  ...settings(),
  filter: at("filter").value,
  sort: table.order && `${table.order.down ? "-" : ""}${table.order.name}`,
  source: datasets.join(" ") === served.join(" ") ? [] : datasets,
  at: past.instant?.toISOString(),
});

/** The address says what is shown, once something is. */
function remember() {
  if (query) history.replaceState(null, "", linkOf(query, viewed()));
}

function tick() {
  const now = Date.now() + clock;
  if (answer.settle()) draw();
  if (table.vars) table.run(now, least);
  if (hosted && stop && at("plan").open && performance.now() - looked > LOOK) look();
  judge(now);
  // Four times a second; the same text again would be drawn again.
  const left = `in ${Math.max(0, Math.ceil((next - now) / 1000))} s`;
  if (stop && next !== null && at("next").textContent !== left) at("next").textContent = left;
  if (unsaid && performance.now() - lastSaid > SAID) {
    const { added, changed, removed } = unsaid;
    at("said").textContent = `${added} rows added, ${changed} changed, ${removed} removed; ${answer.live.length} in all`;
    lastSaid = performance.now();
    unsaid = null;
  }
}

/** Says how true the answer is at this moment, whoever is silent. */
function judge(now) {
  if (!stop || hosted || !due) return;
  const over = Math.max(due.until === null ? 0 : now - due.until, due.next === null ? 0 : now - due.next - LATE);
  const seconds = `${Math.round(over / 1000)} s`;
  if (over > BAD) state("bad", `out of date for ${seconds}${failed && `: ${failed}`}; trying again by itself`);
  else if (failed) state("late", `late: ${failed}; trying again`);
  else if (over > LATE) state("late", `late by ${seconds}; looking again`);
  else if (over > 0) state("due", "looking again…");
  else state(due.kind, due.text);
}

/** What this tab has used. */
function count(told) {
  for (const name of ["requests", "bytes", "cached"]) at(name).textContent = told[name].toLocaleString("en");
  at("all").textContent = told.endpoint.requests.toLocaleString("en");
  const { requests, bytes } = told.endpoint;
  const size = bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
  if (engine instanceof TabEngine) at("used").textContent = `This browser evaluated everything itself, from ${requests.toLocaleString("en")} requests for fragments (${size}). The server computed no query.`;
}

function say(counts) {
  unsaid ??= { added: 0, changed: 0, removed: 0 };
  for (const name of Object.keys(counts)) unsaid[name] += counts[name];
}

/** The answer of ASK as a row. */
function tabled(told) {
  if (told.boolean === undefined) return told;
  const added = [{ answer: { type: "literal", value: String(told.boolean) } }];
  return { ...told, vars: ["answer"], added, valid: [[null, null]], removed: answer.live.map((row) => row.cells) };
}

function heard(name, told) {
  if (told.now) clock = Date.parse(told.now) - Date.now();
  if (name === "initial") say(answer.begin(tabled(told)));
  else if (name === "update") say(answer.update(tabled(told)));
  else if (name === "up-to-date") {
    least = told.valid_until && Date.parse(told.valid_until);
    next = told.next_look && Date.parse(told.next_look);
    at("valid").textContent = told.dynamic ? time(least) : "nothing here is labelled";
    count(told);
    answer.late(told.late ?? []);
    note();
    for (const text of told.warnings ?? []) {
      const line = document.createElement("li");
      line.textContent = text;
      at("warnings").append(line);
    }
    const late = told.late?.length ?? 0;
    failed = "";
    due = { until: least, next, kind: "live", text: "up to date" };
    if (late) Object.assign(due, { kind: "some", text: `up to date, but ${late} ${late === 1 ? "row is" : "rows are"} late` });
    judge(Date.now() + clock);
  } else if (name === "work") {
    count(told);
    if (!due) state("idle", `reading: ${told.requests.toLocaleString("en")} requests so far`);
    return;
  } else if (name === "plan") {
    plan = told;
    table.label(labelsIn(plan.steps));
    showPlan();
    return;
  } else if (name === "error") {
    next = told.next_look && Date.parse(told.next_look);
    if (told.next_look) {
      failed = told.error;
      due ??= { until: Date.now() + clock, next: null, kind: "late", text: "" };
      due.next = null;
      judge(Date.now() + clock);
    } else {
      halt();
      state("bad", `ended: ${told.error}`);
    }
  }
  at("rows").textContent = answer.live.length.toLocaleString("en");
  show();
}

/** Shows the answer as of an instant, in place of the present one. */
async function showPast(instant) {
  if (stop) {
    halt();
    for (const id of ["valid", "next"]) at(id).textContent = "–";
  }
  least = next = null;
  remember();
  const asked = query;
  const shown = `${instant.toISOString().slice(0, 19)}Z`;
  let found = null;
  try {
    await engine.ask(asked, instant, { rows: (told) => (found = joined(found, told)), work: count });
    if (!past.back || query !== asked) return;
    const { vars, added } = found ?? { vars: [], added: [] };
    const places = /\bORDER\s+BY\b/i.test(asked) ? added.map((_, place) => place) : undefined;
    say(answer.begin({ vars, added, valid: added.map(() => [null, null]), places }));
    answer.late([]);
    at("rows").textContent = answer.live.length.toLocaleString("en");
    state("some", `as of ${shown}`);
    show();
  } catch (error) {
    if (past.back && query === asked) state("bad", error.status ? `nobody tells of ${shown}: ${error.message.trim().slice(0, 300)}` : `no answer: ${error.message}`);
  }
}

/** Rows of an answer that come in parts. */
function joined(before, told) {
  const { vars, added } = told.boolean === undefined ? told : { vars: ["answer"], added: [{ answer: { type: "literal", value: String(told.boolean) } }] };
  if (!before) return { vars, added: [...added] };
  if (told.places) told.places.forEach((place, n) => before.added.splice(place, 0, added[n]));
  else before.added.push(...added);
  return before;
}

const past = travel(at, { now: () => Date.now() + clock, ask: showPast, present: () => {
  remember();
  connect();
} });

function halt() {
  asking?.();
  asking = null;
  due = null;
  failed = "";
  stop?.();
  stop = null;
  at("next").textContent = "–";
  at("pause").hidden = true;
}

function connect() {
  if (cannot()) return;
  due = null;
  failed = "";
  state("idle", loading ?? "asking…");
  past.leave();
  at("pause").hidden = false;
  at("pause").textContent = "Pause";
  stop = engine.follow(query, settings(), {
    event: heard,
    refused(status, text) {
      halt();
      problem(text);
      state("bad", status === 400 ? "this query was refused" : `refused (${status})`);
    },
    lost(seconds, why) {
      next = null;
      at("next").textContent = "–";
      failed = why;
      due ??= { until: Date.now() + clock, next: null, kind: "late", text: "" };
      due.next = null;
      judge(Date.now() + clock);
    },
  });
}

let loading = null; // what is to be said while the worker is not ready

/** How far the worker is that evaluates queries. */
function progress(told) {
  const size = (bytes) => (bytes / 1e6).toFixed(1);
  if (told.state === "loading") loading = told.loaded ? `loading: ${size(told.loaded)} of ${size(told.total)} MB` : "loading…";
  else if (told.state === "starting") loading = "starting…";
  else if (told.state === "broken") loading = `the engine does not start: ${told.error}; trying again`;
  else {
    loading = null;
    keep();
  }
  at("loading").hidden = told.state !== "loading" || !told.loaded;
  if (told.loaded) at("loading").value = told.loaded / told.total;
  if ((stop || asking) && !due) state(told.state === "broken" ? "bad" : "idle", loading ?? "asking…");
}

/** Says what to do where queries cannot be evaluated; whether that is so. */
function cannot() {
  const why = engine instanceof EndpointEngine ? null : whyNot() ?? (datasets.length ? null : "There is no source yet: put the URL of a dataset of Triple Pattern Fragments above.");
  at("cannot").hidden = why === null;
  if (why === null) return false;
  at("why").textContent = why;
  at("command").parentElement.hidden = !datasets.length;
  at("command").textContent = commandOf(editor.text, settings(), datasets);
  state("bad", datasets.length ? "not evaluated here" : "no source");
  return true;
}

/** Looks at the operators of the query that is followed. */
async function look() {
  looked = performance.now();
  const followed = hosted.id;
  try {
    const told = await streams.of(followed);
    if (hosted?.id === followed) hosted = told;
  } catch {
    // Whoever follows its results is told why.
  }
  showPlan();
}

/** Follows a query that the server has. */
function connectStream() {
  const emissions = new Emissions(hosted);
  answer = new Answer();
  state("idle", "waiting for results…");
  at("pause").hidden = false;
  at("pause").textContent = "Pause";
  stop = follow(streams.resultsOf(hosted.id), {
    headers: streams.headers,
    event(name, told) {
      if (name === "error") {
        halt();
        state("bad", `ended: ${told.error}`);
        return;
      }
      clock = Date.parse(told.at) - Date.now();
      const update = emissions.update(told);
      say(answer.vars.length ? answer.update(update) : answer.begin(update));
      at("rows").textContent = answer.live.length.toLocaleString("en");
      state("live", told.result ? "as of the last result" : told.removed ? "what left the result" : "what came last");
      note();
      show();
    },
    refused(status, text) {
      halt();
      state("bad", `refused (${status}): ${text.slice(0, 300)}`);
    },
    lost(seconds, why) {
      state("late", `${why}; asking again in ${seconds} s`);
    },
  });
}

async function followHosted(told) {
  hosted = told;
  query = told.text;
  at("past").hidden = true;
  connectStream();
  showPlan();
  await list();
}

async function registerStream() {
  state("idle", "registering…");
  try {
    await followHosted(await streams.register(query));
  } catch (error) {
    problem(error.message);
    state("bad", error.status === 401 || error.status === 403 ? "the server wants its token" : "not registered");
    at("continuous").open = true;
  }
}

/** Lists the continuous queries that the server has. */
async function list() {
  let found = [];
  try {
    found = await streams.all();
  } catch (error) {
    at("registered").replaceChildren(Object.assign(document.createElement("li"), { textContent: error.message }));
    return;
  }
  at("registered").replaceChildren(...found.map(({ name, language, state: how }) => {
    const item = document.createElement("li");
    const button = (text, action) => {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      made.setAttribute("aria-label", `${text} ${name}`);
      made.addEventListener("click", async () => {
        try {
          await action();
        } catch (error) {
          state("bad", error.message);
        }
        await list();
      });
      return made;
    };
    const show = async () => {
      const told = await streams.of(name);
      editor.text = told.text;
      ready();
      await followHosted(told);
    };
    item.append(`${name} (${language}, ${how}) `, button("Follow", show), " ", button("Stop", () => streams.stop(name)));
    return item;
  }));
}

function ready() {
  halt();
  problem("");
  hosted = null;
  query = editor.text;
  answer = new Answer();
  least = next = null;
  for (const id of ["rows", "valid", "next", "requests", "bytes", "cached"]) at(id).textContent = "–";
  at("warnings").replaceChildren();
  at("start").hidden = true;
  plan = null;
  showPlan();
  map.clear();
  chart.clear();
  at("map").hidden = at("chart").hidden = true;
  past.leave();
  at("past").hidden = /\b(CONSTRUCT|DESCRIBE)\b/i.test(query);
  remember();
}

function watch() {
  ready();
  if (streams && isContinuous(query)) registerStream();
  else connect();
}

async function once() {
  ready();
  if (cannot()) return;
  state("idle", loading ?? "asking…");
  const asked = query;
  let found = null;
  try {
    await engine.ask(asked, null, {
      begun: (stopping) => (asking = stopping),
      work(told) {
        count(told);
        state("idle", `reading: ${told.requests.toLocaleString("en")} requests so far`);
      },
      plan(told) {
        plan = told;
        showPlan();
      },
      rows(told) {
        if (query !== asked || stop) return;
        found = joined(found, told);
        answer = new Answer();
        answer.begin({ ...found, valid: found.added.map(() => [null, null]) });
        at("rows").textContent = found.added.length.toLocaleString("en");
        show();
      },
    }).then((told) => told.endpoint && count(told));
    asking = null;
    at("rows").textContent = answer.live.length.toLocaleString("en");
    state("idle", "answered once");
  } catch (error) {
    if (error.stopped || error.name === "AbortError") return;
    asking = null;
    if (error.status) problem(error.message);
    state("bad", error.status === 400 ? "this query was refused" : error.status ? `failed (${error.status})` : `no answer: ${error.message}`);
  }
}

/** What there is to begin with, for who has never asked. */
function offer(examples) {
  const shown = (examples.length ? examples : EXAMPLES).slice(0, 3);
  at("offers").replaceChildren(...shown.map(({ title, query: text }) => {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: title });
    button.addEventListener("click", () => {
      editor.text = text;
      // What is not labelled, and is large, is better read once.
      if (examples.length) watch();
      else once();
    });
    item.append(button);
    return item;
  }));
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  watch();
});
at("once").addEventListener("click", once);
at("sources").addEventListener("change", ({ target }) => {
  datasets = target.value.split(/[\s,]+/).filter((each) => /^https?:\/\//.test(each));
  table.dataset = datasets[0];
  target.value = datasets.join(" ");
  at("datasets").textContent = datasets.length ? `over ${datasets.join(", ")}` : "";
  at("cannot").hidden = true;
  learn();
});
at("filter").addEventListener("input", () => {
  show();
  remember();
});
at("pause").addEventListener("click", () => {
  if (stop) {
    stop();
    stop = null;
    at("next").textContent = "–";
    state("idle", "paused");
    at("pause").textContent = "Go on";
  } else if (hosted) connectStream();
  else connect();
});
at("plan").addEventListener("toggle", showPlan);
at("continuous").addEventListener("toggle", () => at("continuous").open && list());
at("token").addEventListener("change", list);
at("map").addEventListener("toggle", draw);
at("chart").addEventListener("toggle", () => chart.draw());
at("column").addEventListener("change", note);
at("examples").addEventListener("change", (event) => {
  if (event.target.value) editor.text = event.target.value;
  editor.focus();
});
at("share").addEventListener("click", async ({ target }) => {
  const [text, set] = [editor.text, settings()];
  const copies = streams && isContinuous(text) ? streams.copies(text, hosted?.text === text ? hosted.id : null) : {
    link: () => linkOf(text, text === query ? viewed() : set),
    curl: () => curlOf(text, set),
    python: () => pythonOf(text, set, datasets),
    command: () => commandOf(text, set, datasets),
  };
  if (target.dataset.copy) {
    const copied = (copies[target.dataset.copy] ?? (() => linkOf(text, set)))();
    target.dataset.copied = copied;
    try {
      await navigator.clipboard.writeText(copied);
      at("said").textContent = "copied";
    } catch {
      window.prompt("Copy this:", copied);
    }
  } else if (target.dataset.save) {
    const rows = answer.live.map((row) => row.cells);
    if (target.dataset.save === "csv") save("answer.csv", "text/csv", csvOf(answer.vars, rows));
    else save("answer.json", "application/sparql-results+json", jsonOf(answer.vars, rows));
  } else return;
  closeShare();
});
function closeShare() {
  const inside = at("share").contains(document.activeElement);
  at("share").open = false;
  if (inside) at("share").firstElementChild.focus();
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && at("share").open) closeShare();
});
at("share").addEventListener("toggle", () => {
  // A query over streams lives at the server: `tpf-query` asks fragments.
  at("share").querySelector("[data-copy=command]").disabled = streams !== null && isContinuous(editor.text);
});

function fromLink() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  at("interval").value = parameters.get("max-interval") ?? "";
  at("grace").value = parameters.get("grace") ?? "";
  at("filter").value = parameters.get("filter") ?? "";
  if (!(engine instanceof EndpointEngine)) from(parameters);
  const sort = parameters.get("sort");
  table.order = sort ? { name: sort.replace(/^-/, ""), down: sort.startsWith("-") } : null;
  return parameters.get("query");
}

/** The datasets that a link names, or else those of whoever serves the page. */
function from(parameters) {
  const wanted = parameters.getAll("source").flatMap((each) => each.split(/[\s,]+/)).filter(Boolean);
  const named = new URLSearchParams(location.search).get("dataset");
  datasets = wanted.length ? wanted : named ? served.filter((each) => each.endsWith(`/${named}`)) : served;
  table.dataset = datasets[0];
  at("sources").value = datasets.join(" ");
  at("datasets").textContent = datasets.length ? `over ${datasets.join(", ")}` : "";
}

/** Completion works without the dataset's words, too. */
async function learn() {
  try {
    const words = datasets.length || engine instanceof EndpointEngine ? await engine.words() : null;
    if (words) editor.words = words;
  } catch {
    // The endpoint is away, which its answers tell.
  }
}

async function begin() {
  let told = { datasets: [], examples: [] };
  let problem = null;
  try {
    told = await (await fetch("page.json")).json();
  } catch (error) {
    problem = error;
  }
  served = datasets = told.datasets.map((each) => new URL(each, location.href).href);
  if (told.endpoint) engine = new EndpointEngine();
  at("sources-line").hidden = Boolean(told.endpoint);
  at("service").hidden = !told.endpoint;
  at("datasets").hidden = !told.endpoint;
  at("all-of").textContent = told.endpoint ? "Endpoint in all" : "Browser in all";
  if (told.endpoint) at("by").textContent = "this endpoint";
  if (told.endpoint) at("datasets").textContent = `over ${datasets.join(", ")}`;
  let asked = fromLink();
  if (told.tiles) map.tile(told.tiles);
  if (told.continuous) streams = new ContinuousQueries(told.continuous, () => at("token").value);
  at("continuous").hidden = !streams;
  at("examples-label").hidden = !told.examples.length;
  at("examples").append(new Option("choose…", ""), ...told.examples.map((each) => new Option(each.title, each.query)));
  offer(told.examples);
  const wanted = new URLSearchParams(location.hash.slice(1)).get("example");
  asked ??= told.examples[wanted - 1]?.query ?? null;
  editor.text = asked ?? told.examples[0]?.query ?? FIRST;
  if (problem) state("bad", `the endpoint does not answer: ${problem.message}`);
  setInterval(tick, 250);
  // A continuous query is registered by nobody but a person.
  if (asked !== null) go(asked);
  else if (!engine) cannot();
  // After what was asked for.
  setTimeout(learn, asked === null ? 0 : 3000);
}

/** Keeps the files of the page for the next visit, once they are there; a page goes on without. */
function keep() {
  navigator.serviceWorker?.register("offline.js").catch(() => {});
}

/** Does what a link says: watches its query, or goes back to its instant. */
function go(asked) {
  const instant = Date.parse(new URLSearchParams(location.hash.slice(1)).get("at") ?? "");
  if (!watched() || isContinuous(asked)) return;
  if (Number.isNaN(instant)) {
    watch();
    return;
  }
  ready();
  past.to(instant);
}

/** Whether who made the link wants the query watched, and not only written. */
const watched = () => new URLSearchParams(location.hash.slice(1)).get("watch") !== "false";

addEventListener("hashchange", () => {
  const asked = fromLink();
  if (asked !== null && asked !== query) {
    editor.text = asked;
    go(asked);
  }
});
begin();
