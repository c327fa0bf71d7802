// The page: renders what a session is, and tells it what people do.
import { Alert } from "./alert.js";
import { Chart, numeric } from "./chart.js";
import { ContinuousQueries, drawOperators, isContinuous } from "./continuous.js";
import { makeEditor } from "./editor.js";
import { EndpointEngine } from "./endpoint.js";
import { forget, keep, keptQueries, titleOf } from "./kept.js";
import { Labels } from "./labels.js";
import { PointMap, coordinates } from "./map.js";
import { travel } from "./past.js";
import { drawPlan, element } from "./plan.js";
import { Session } from "./session.js";
import { commandOf, csvOf, curlOf, embedOf, jsonOf, linkOf, pythonOf, save } from "./sharing.js";
import { TabEngine, whyNot } from "./tab.js";
import { Table } from "./table.js";
import { KNOWN, agoOf, instantOf, labelsIn, localOf, nodeOf, prefixesOf, textOf, utcOf } from "./terms.js";

const at = (id) => document.getElementById(id);
const FIRST = "SELECT * WHERE {\n  ?subject ?predicate ?object\n}\nLIMIT 100";
const SAID = 5000; // milliseconds between two sentences for who listens,
const TICKED = 4000; // for which the ticker stays,
const LOOK = 2000; // and between two looks at the operators of a continuous query
const VIEWS = ["table", "chart", "map", "plan", "history"];
const EXAMPLES = [
  { title: "Some facts", query: FIRST },
  { title: "What kinds of things there are", query: "SELECT DISTINCT ?kind WHERE {\n  ?thing a ?kind\n}\nLIMIT 50" },
  { title: "What things are called", query: "PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>\nSELECT ?thing ?name WHERE {\n  ?thing rdfs:label ?name\n}\nLIMIT 50" },
];
const embedded = new URLSearchParams(location.search).has("embed");
const number = (value) => value.toLocaleString("en");

// All that the page is beside its session: which answer is looked at, and how.
const page = { title: "Live Linked Data", examples: [], served: [], datasets: [], view: "table", filter: "", stopped: "", prefixes: prefixesOf("") };

const session = new Session(() => render());
const editor = makeEditor(at("editor"), () => run(), check);
const table = new Table(at("scroll"), at("table"), { sorted: () => (render(), remember()), chosen: openRow, seen: (iris) => labels.want(iris) });
const map = new PointMap(at("map"), openRow);
const chart = new Chart(at("chart"), () => session.now());
const labels = new Labels((query) => session.rowsOf(query), () => table.again());
const alert = new Alert(alarm);
const past = travel(at, { now: () => session.now(), ask: (instant) => (remember(), session.past(instant)), present: () => (remember(), session.again()), shown: () => show("history") });
table.labels = labels.known;
session.settings = () => ({ "max-interval": at("interval").value, grace: at("grace").value });
session.engine = whyNot() ? null : new TabEngine(() => page.datasets, progress);

// Rendering: one function for each part of the page.

let waiting = false;

/** Renders once, however much has changed. */
function render() {
  if (waiting) return;
  waiting = true;
  queueMicrotask(() => {
    waiting = false;
    renderHead();
    renderNews();
    renderView();
    tick();
  });
}

function renderHead() {
  put("title", session.query ? titleOf(session.query) : "A new query");
  if (!document.title.startsWith("(!)")) document.title = `${session.query ? `${titleOf(session.query)} – ` : ""}${page.title}`;
  put("datasets", page.datasets.length ? `over ${page.datasets.join(", ")}` : "");
  at("stop").hidden = !session.running && !page.stopped;
  put("stop", session.running ? "Stop" : "Go on");
  put("problem", session.problem);
  if (session.problem && session.problem !== page.problem) openControls();
  page.problem = session.problem;
  if (session.hosted?.id !== page.hosted) {
    page.hosted = session.hosted?.id;
    list();
  }
  at("estimate").hidden = !session.estimate;
  if (session.estimate) put(at("estimate").firstElementChild, `This reads about ${number(session.estimate.facts)} facts: watch anyway?`);
  at("warnings").replaceChildren(...session.warnings.map((text) => element("li", text)));
  at("past").hidden = session.hosted !== null || /\b(CONSTRUCT|DESCRIBE)\b/i.test(session.query);
  if (session.work) renderWork(session.work);
}

function renderWork(work) {
  for (const name of ["requests", "bytes", "cached"]) if (work[name] !== undefined) put(name, number(work[name]));
  if (!work.endpoint) return;
  const { requests, bytes } = work.endpoint;
  put("all", number(requests));
  const size = bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
  if (session.engine instanceof TabEngine) put("used", `This browser evaluated everything itself, from ${number(requests)} requests for fragments (${size}). The server computed no query.`);
}

let logged = null; // the newest change that was noted
let heard = null; // what is still to be said to who listens
let lastSaid = 0;

/** What has just changed: the ticker, the list of changes, the alert. */
function renderNews() {
  const [last] = session.log;
  if (last !== logged) {
    logged = last ?? null;
    const text = last && lineOf(last);
    put("ticker", text ?? "");
    if (last) {
      page.ticked = performance.now();
      heard ??= { added: 0, changed: 0, removed: 0 };
      for (const name of Object.keys(heard)) heard[name] += last[name];
    }
    at("log").replaceChildren(...session.log.map((each) => {
      const item = element("li");
      const time = element("time", utcOf(each.at));
      time.title = localOf(each.at);
      item.append(time, ` ${lineOf(each)}`);
      return item;
    }));
  }
  if (session.due || session.hosted) alert.look(session.answer.live, (row) => session.answer.vars.map((name) => table.textOf(row.cells[name])).join(" · "));
}

const lineOf = ({ added, changed, removed }) => [[changed, "changed"], [added, "new"], [removed, "gone"]].filter(([count]) => count).map(([count, word]) => `${number(count)} ${word}`).join(", ");

function renderView() {
  const { answer } = session;
  const rows = answer.rows(page.filter, table.order, (term) => labels.known.get(term?.value));
  const all = answer.live.length;
  const shown = page.filter ? rows.filter((row) => row.kind !== "gone").length : all;
  put("rows", answer.vars.length ? `${page.filter ? `${number(shown)} of ` : ""}${number(all)} ${all === 1 ? "row" : "rows"}` : "");
  note();
  if (session.plan) table.name(labelsIn(session.plan.steps));
  if (at("row").open && page.row.version !== page.version) renderRow();
  const { view } = page;
  if (view === "table" || view === "history") {
    // Where nothing is labelled there is nothing that would run down.
    at("table").classList.toggle("unlabelled", !session.dynamic);
    renderEmpty(rows);
    table.show(answer.vars, rows, page.prefixes);
  } else if (view === "chart") chart.draw();
  else if (view === "map") renderMap(rows);
  else if (session.hosted) drawOperators(at("steps"), session.hosted, page.prefixes);
  else if (session.plan) drawPlan(at("steps"), session.plan, page.prefixes);
  else {
    at("steps").replaceChildren(element("p", session.query ? "The plan comes with the answer." : "A query that was asked has a plan.", "soft"));
    if (session.query && !session.running && !page.refused) session.foresee();
  }
}

/** Says why there are no rows. */
function renderEmpty(rows) {
  at("offers").hidden = Boolean(session.query);
  at("empty").hidden = rows.length > 0;
  at("scroll").hidden = !session.answer.vars.length || (!rows.length && !embedded);
  if (rows.length || !session.query) return;
  const all = session.answer.live.length;
  if (all) put("why-empty", `No row has “${page.filter}”; there are ${number(all)} without the filter.`);
  else if (session.failed && session.dynamic === null) put("why-empty", "No answer so far.");
  else if (session.due) put("why-empty", session.lastMatch ? `Nothing matches now; last match ${utcOf(session.lastMatch)}.` : "Nothing matches now. Rows appear as soon as there are some.");
  else if (session.running) put("why-empty", session.mode === "hosted" ? "No result yet." : "No rows so far.");
  else put("why-empty", session.said.kind === "bad" || session.estimate || page.refused ? "" : session.mode === "past" ? "Nothing matched at that instant." : "Nothing matches.");
}

function renderMap(rows) {
  const read = session.answer.vars.length ? coordinates(session.answer.vars, rows) : null;
  // It stays while a filter leaves no rows.
  const some = read || (rows.length === 0 && map.map && session.answer.live.length > 0);
  at("map").hidden = !some;
  at("panel-map").querySelector(".none").hidden = Boolean(some);
  if (some) map.show(session.answer.vars, rows, read ?? (() => null), page.prefixes);
}

/** Takes the present numbers into the chart. */
function note() {
  const { answer, beat } = session;
  const columns = numeric(answer.vars, answer.live);
  const select = at("column");
  if ([...select.options].map((each) => each.value).join(" ") !== columns.join(" ")) {
    const chosen = select.value;
    select.replaceChildren(...columns.map((name) => new Option(name, name)));
    const place = /^(lat|latitude|lng|long?|longitude)$/i; // which changes least
    const first = columns.findLast((name) => !place.test(name)) ?? columns.at(-1) ?? "";
    select.value = columns.includes(chosen) ? chosen : first;
  }
  at("panel-chart").classList.toggle("without", !columns.length);
  // Once for each evaluation.
  if (columns.length && (beat !== page.noted || chart.column !== select.value)) chart.note(select.value, answer.live);
  page.noted = beat;
}

/** What goes on by itself: four times a second. */
function tick() {
  if (session.answer.settle()) renderView();
  const now = session.now();
  if (table.vars) table.run(now, session.least);
  if (session.hosted && page.view === "plan" && performance.now() - (page.looked ?? 0) > LOOK) look();
  renderState();
  put("next", session.next === null ? "–" : `in ${Math.max(0, Math.ceil((session.next - now) / 1000))} s`);
  put("valid", holds(now));
  if (page.ticked && performance.now() - page.ticked > TICKED) {
    put("ticker", "");
    page.ticked = 0;
  }
  if (heard && performance.now() - lastSaid > SAID) {
    put("said", `${lineOf(heard)}; ${number(session.answer.live.length)} rows in all`);
    lastSaid = performance.now();
    heard = null;
  }
}

/** Until when the answer holds, for clocks here and elsewhere. */
function holds(now) {
  const { least, due } = session;
  if (session.mode === "watch" && due) {
    if (session.dynamic === null) return "";
    if (!session.dynamic) return "nothing here is labelled: looked at once a minute";
    if (least === null) return "always";
    return `holds until ${both(least, now)}`;
  }
  return session.mode === "idle" && session.answered !== null ? `at ${both(session.answered, now)}` : "";
}

function both(instant, now) {
  const here = localOf(instant) && `${new Date(instant).toLocaleTimeString()} here, `;
  return `${new Date(instant).toISOString().slice(11, 19)} UTC (${here}${agoOf(instant, now)})`;
}

/** How true the answer is: by the clock, whoever is silent. */
function renderState() {
  const { kind, text } = page.refused ?? session.status();
  const shown = at("state");
  at("try").hidden = !(session.mode === "watch" && (kind === "bad" || kind === "late"));
  if (shown.textContent === text && shown.dataset.kind === kind) return;
  // Seconds that go by are no news for who listens.
  if (kind !== shown.dataset.kind && kind !== "due" && !(kind === "live" && shown.dataset.kind === "due")) put("said", text);
  shown.dataset.kind = kind;
  shown.textContent = text;
  at("table").classList.toggle("late", kind === "late" || kind === "bad");
}

/** Sets a text: the same one again would be drawn again. */
function put(which, text) {
  const node = typeof which === "string" ? at(which) : which;
  if (node.textContent !== text) node.textContent = text;
}

// What people do.

/** Says what to do where queries cannot be evaluated; whether that is so. */
function cannot(text) {
  const why = session.engine instanceof EndpointEngine || isContinuous(text) && session.streams ? null : whyNot() ?? (page.datasets.length ? null : "There is no source yet: put the URL of a dataset of Triple Pattern Fragments above.");
  at("cannot").hidden = why === null;
  page.refused = why === null ? null : { kind: "bad", text: page.datasets.length ? "not evaluated here" : "no source" };
  if (why === null) return false;
  put("why", why);
  at("command").parentElement.hidden = !page.datasets.length;
  put("command", commandOf(text, session.settings(), page.datasets));
  return true;
}

/** Has another query in sight, of which nothing is known yet. */
function turnTo(query) {
  page.stopped = "";
  page.prefixes = prefixesOf(query);
  labels.left = 500;
  map.clear();
  chart.clear();
  at("row").close();
  past.leave();
  if (cannot(query)) {
    session.reset("");
    openControls();
    render();
    return false;
  }
  at("query-box").open = false;
  document.body.classList.remove("sheet");
  return true;
}

function run(how = "auto", { push = true } = {}) {
  const query = editor.text;
  if (!turnTo(query)) return;
  const inside = at("query-box").contains(document.activeElement) || document.activeElement === document.body;
  session.run(query, how);
  remember(push);
  if (inside && !embedded) at("query-box").firstElementChild.focus({ preventScroll: true });
  render();
}

/** The parser's word on what stands in the editor. */
async function check(text) {
  editor.mark();
  if (!text.trim() || (session.streams && isContinuous(text)) || !session.engine || session.loading) return;
  if (!(session.engine instanceof EndpointEngine) && !page.datasets.length) return;
  try {
    await session.engine.check(text);
    if (text === editor.text && session.problem) session.problem = "";
  } catch (error) {
    if (text !== editor.text || error.status !== 400) return;
    session.problem = error.message;
    mark(error.message);
  }
  put("problem", session.problem);
}

function mark(text) {
  const place = /^line (\d+), column (\d+): (.*)/.exec(text);
  if (place) editor.mark(place[3], Number(place[1]), Number(place[2]));
}

function openControls() {
  mark(session.problem);
  at("query-box").open = true;
  if (session.said.text === "the server wants its token") at("continuous").open = true;
  document.body.classList.add("sheet");
}

function show(view) {
  page.view = VIEWS.includes(view) ? view : "table";
  for (const each of VIEWS) {
    const tab = at(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === page.view));
    tab.tabIndex = each === page.view ? 0 : -1;
    at(`panel-${each}`).hidden = each !== page.view && !(each === "table" && page.view === "history");
  }
  render();
}

/** Opens a row, which stays true while it is open. */
function openRow(row) {
  page.row = row;
  renderRow();
  at("row").showModal();
}

/** A row with all that it holds. */
function renderRow() {
  const { row } = page;
  page.version = row.version;
  const { vars } = session.answer;
  const label = (name) => labels.known.get(row.cells[name]?.value) ?? row.cells[table.named[name]]?.value;
  const first = vars.find((name) => label(name)) ?? vars.find((name) => row.cells[name]?.type === "literal") ?? vars[0];
  put("row-title", label(first) ?? textOf(row.cells[first], page.prefixes));
  at("row-cells").replaceChildren(...vars.map((name) => {
    const line = element("div");
    const cell = element("dd");
    const term = row.cells[name];
    const more = term?.type === "uri" ? term.value : term?.datatype ? `${localOf(instantOf(term))} ${textOf({ type: "uri", value: term.datatype }, page.prefixes)}` : term?.["xml:lang"] ?? "";
    cell.append(nodeOf(term, page.prefixes, table.dataset, labels.known.get(term?.value)), element("div", more, "soft"));
    line.append(element("dt", name), cell);
    return line;
  }));
}

function alarm(text) {
  put(at("alarm").firstElementChild, text);
  at("alarm").hidden = false;
  document.title = `(!) ${titleOf(session.query)}`;
}

function setAlert(text) {
  at("alert").value = text;
  try {
    alert.set(text);
    put("alert-problem", "");
  } catch (error) {
    put("alert-problem", error.message);
  }
}

/** What a link holds beside the query: how its answer is looked at. */
const viewed = () => ({
  ...session.settings(),
  filter: page.filter,
  sort: table.order && `${table.order.down ? "-" : ""}${table.order.name}`,
  view: page.view === "table" ? "" : page.view,
  alert: alert.text,
  source: page.datasets.join(" ") === page.served.join(" ") ? [] : page.datasets,
  at: past.instant?.toISOString(),
});

/** The address says what is shown, once something is; another query is another step of Back. */
function remember(push = false) {
  if (!session.query) return;
  const link = linkOf(session.query, viewed());
  if (push && new URLSearchParams(location.hash.slice(1)).get("query") !== session.query) history.pushState(null, "", link);
  else history.replaceState(null, "", link);
  if (!embedded) keep(session.query, location.hash);
  at("whole").href = link.replace(/\?[^#]*/, (search) => search.replace(/embed=?&?/, "").replace(/^\?$/, ""));
}

function fromLink() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  at("interval").value = parameters.get("max-interval") ?? "";
  at("grace").value = parameters.get("grace") ?? "";
  at("filter").value = page.filter = parameters.get("filter") ?? "";
  setAlert(parameters.get("alert") ?? "");
  if (!(session.engine instanceof EndpointEngine)) from(parameters);
  const sort = parameters.get("sort");
  table.order = sort ? { name: sort.replace(/^-/, ""), down: sort.startsWith("-") } : null;
  if (table.vars) table.showOrder();
  show(parameters.get("view"));
  return parameters.get("query") ?? page.examples[parameters.get("example") - 1]?.query ?? null;
}

/** The datasets that a link names, or else those of whoever serves the page. */
function from(parameters) {
  const wanted = parameters.getAll("source").flatMap((each) => each.split(/[\s,]+/)).filter(Boolean);
  const named = new URLSearchParams(location.search).get("dataset");
  over(wanted.length ? wanted : named ? page.served.filter((each) => each.endsWith(`/${named}`)) : page.served);
}

function over(datasets) {
  page.datasets = datasets;
  table.dataset = datasets[0];
  at("sources").value = datasets.join(" ");
}

/** Does what a link says: asks its query, or goes back to its instant. */
function go(query) {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const instant = Date.parse(parameters.get("at") ?? "");
  editor.text = query;
  // A continuous query is registered by nobody but a person.
  if (parameters.get("watch") === "false" || isContinuous(query)) render();
  else if (Number.isNaN(instant)) run("auto", { push: false });
  else if (turnTo(query)) {
    session.reset(query);
    past.to(instant);
  }
}

/** How far the worker is that evaluates queries. */
function progress(told) {
  const size = (bytes) => (bytes / 1e6).toFixed(1);
  const texts = { loading: told.loaded ? `loading: ${size(told.loaded)} of ${size(told.total)} MB` : "loading…", starting: "starting…", broken: `the engine does not start: ${told.error}; trying again` };
  session.loading = texts[told.state] ? { kind: told.state === "broken" ? "bad" : "idle", text: texts[told.state] } : null;
  // The files of the page are kept for the next visit, once they are there; a page goes on without.
  if (!session.loading) navigator.serviceWorker?.register("offline.js").catch(() => {});
  at("loading").hidden = told.state !== "loading" || !told.loaded;
  if (told.loaded) at("loading").value = told.loaded / told.total;
  render();
}

/** Takes the words and prefixes of the datasets; completion works without, too. */
async function learn() {
  try {
    if (!session.engine || !(page.datasets.length || session.engine instanceof EndpointEngine)) return;
    const words = await session.engine.words(page.served);
    editor.words = words;
    for (const [name, iri] of Object.entries(words.prefixes)) KNOWN[name] ??= iri;
    page.prefixes = prefixesOf(session.query);
    // A sample may lack the one that gives labels.
    const sampled = words.predicates.some(([, count]) => count === null);
    labels.over(words.predicates.map(([iri]) => iri), sampled);
    render();
  } catch {
    // The endpoint is away, which its answers tell.
  }
}

// Continuous queries of the server.

/** Looks at the operators of the query that is followed. */
async function look() {
  page.looked = performance.now();
  const { id } = session.hosted;
  try {
    const told = await session.streams.of(id);
    if (session.hosted?.id === id) session.hosted = told;
    render();
  } catch {
    // Whoever follows its results is told why.
  }
}

/** Lists the continuous queries that the server has. */
async function list() {
  if (!session.streams) return;
  let found = [];
  try {
    found = await session.streams.all();
  } catch (error) {
    at("registered").replaceChildren(element("li", error.message));
    return;
  }
  at("registered").replaceChildren(...found.map(({ name, language, state: how }) => {
    const item = element("li");
    const button = (text, action) => {
      const made = Object.assign(element("button", text), { type: "button" });
      made.setAttribute("aria-label", `${text} ${name}`);
      made.addEventListener("click", async () => {
        try {
          await action();
        } catch (error) {
          session.say("bad", error.message);
        }
        await list();
      });
      return made;
    };
    const shown = async () => {
      const told = await session.streams.of(name);
      editor.text = told.text;
      turnTo(told.text);
      session.followHosted(told);
    };
    item.append(`${name} (${language}, ${how}) `, button("Follow", shown), " ", button("Stop", () => session.streams.stop(name)));
    return item;
  }));
}

// Queries to begin with, and those that were kept.

function queryButton(title, action) {
  const item = element("li");
  const button = Object.assign(element("button", title), { type: "button" });
  button.addEventListener("click", () => {
    at("queries").close();
    action();
  });
  item.append(button);
  return item;
}

const asked = (query) => () => {
  editor.text = query;
  run();
};

function listQueries() {
  at("examples-title").hidden = !page.examples.length;
  at("examples").replaceChildren(...page.examples.map((each) => queryButton(each.title, asked(each.query))));
  const kept = keptQueries().map(({ query, link }) => {
    const item = queryButton(titleOf(query), () => {
      history.pushState(null, "", link);
      go(fromLink() ?? query);
    });
    const away = Object.assign(element("button", "Forget"), { type: "button" });
    away.setAttribute("aria-label", `Forget ${titleOf(query)}`);
    away.addEventListener("click", () => {
      forget(query);
      listQueries();
    });
    item.append(away);
    return item;
  });
  at("kept").replaceChildren(...(kept.length ? kept : [element("li", "None yet: each query that you run is kept here.", "soft")]));
}

// Controls.

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
for (const [id, how] of [["watch", "watch"], ["once", "once"], ["anyway", "anyway"], ["rather", "once"]]) at(id).addEventListener("click", () => run(how));
at("stop").addEventListener("click", () => {
  if (session.running) {
    page.stopped = session.mode === "watch" || session.mode === "hosted" ? session.mode : "";
    session.stop();
    session.say("idle", "stopped");
  } else {
    const [before, hosted] = [page.stopped, session.hosted];
    page.stopped = "";
    if (before === "hosted") session.followHosted(hosted);
    else session.again();
  }
  render();
});
at("try").addEventListener("click", () => session.again());
at("sources").addEventListener("change", ({ target }) => {
  over(target.value.split(/[\s,]+/).filter((each) => /^https?:\/\//.test(each)));
  at("cannot").hidden = true;
  page.refused = null;
  render();
  learn();
});
at("filter").addEventListener("input", ({ target }) => {
  page.filter = target.value;
  render();
  remember();
});
at("alert-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setAlert(at("alert").value);
  if (alert.condition && session.answer.vars.length && !session.answer.vars.includes(alert.condition.name)) put("alert-problem", `this answer has no ?${alert.condition.name}`);
  if (alert.condition) alert.allow();
  remember();
  render();
});
at("alarm").lastElementChild.addEventListener("click", () => {
  at("alarm").hidden = true;
  document.title = titleOf(session.query);
});
at("continuous").addEventListener("toggle", () => at("continuous").open && list());
at("token").addEventListener("change", list);
at("column").addEventListener("change", render);
for (const view of VIEWS) {
  at(`tab-${view}`).addEventListener("click", () => {
    show(view);
    remember();
  });
}
at("views").addEventListener("keydown", ({ key, target }) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (!step || target.role !== "tab") return;
  show(VIEWS.at((VIEWS.indexOf(page.view) + step) % VIEWS.length));
  at(`tab-${page.view}`).focus();
});
at("sheet-open").addEventListener("click", () => document.body.classList.add("sheet"));
at("sheet-close").addEventListener("click", () => document.body.classList.remove("sheet"));
at("queries-open").addEventListener("click", () => {
  listQueries();
  at("queries").showModal();
});
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
}
at("share").addEventListener("click", async ({ target }) => {
  const [text, set] = [editor.text, session.settings()];
  const all = text === session.query ? viewed() : set;
  const copies = {
    link: () => linkOf(text, all),
    embed: () => embedOf(text, all),
    curl: () => curlOf(text, set),
    python: () => pythonOf(text, set, page.datasets),
    command: () => commandOf(text, set, page.datasets),
    ...(session.streams && isContinuous(text) && session.streams.copies(text, session.hosted?.text === text ? session.hosted.id : null)),
  };
  if (target.dataset.copy) {
    const copied = copies[target.dataset.copy]();
    target.dataset.copied = copied;
    try {
      await navigator.clipboard.writeText(copied);
      put("said", "copied");
    } catch {
      window.prompt("Copy this:", copied);
    }
  } else if (target.dataset.save) {
    const rows = session.answer.live.map((row) => row.cells);
    if (target.dataset.save === "csv") save("answer.csv", "text/csv", csvOf(session.answer.vars, rows));
    else save("answer.json", "application/sparql-results+json", jsonOf(session.answer.vars, rows));
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
  if (event.key === "Escape") document.body.classList.remove("sheet");
});
at("share").addEventListener("toggle", () => {
  // A query over streams lives at the server: `tpf-query` asks fragments, and a frame registers nothing.
  const hosted = session.streams !== null && isContinuous(editor.text);
  // What a browser evaluates has no address that programs could ask.
  const unserved = !hosted && !(session.engine instanceof EndpointEngine);
  for (const [name, off] of [["command", hosted], ["embed", hosted], ["curl", unserved]]) at("share").querySelector(`[data-copy=${name}]`).disabled = off;
});
addEventListener("pageshow", ({ persisted }) => persisted && session.mode === "watch" && session.again());
addEventListener("popstate", () => {
  const query = fromLink();
  if (query !== null && query !== session.query) go(query);
});

async function begin() {
  document.documentElement.classList.toggle("embed", embedded);
  let told = { datasets: [], examples: [] };
  let problem = null;
  try {
    const response = await fetch("page.json");
    if (!response.ok) throw new Error(`page.json: ${response.status}`);
    told = await response.json();
  } catch (error) {
    problem = error;
  }
  page.title = told.title ?? page.title;
  page.examples = told.examples;
  page.served = told.datasets.map((each) => new URL(each, location.href).href);
  over(page.served);
  if (told.endpoint) session.engine = new EndpointEngine();
  put("brand-name", page.title);
  at("sources-line").hidden = Boolean(told.endpoint);
  at("service").hidden = !told.endpoint;
  at("brand").href = location.pathname.endsWith("/query/") ? "../" : "./";
  put("all-of", told.endpoint ? "Endpoint in all" : "Browser in all");
  if (told.endpoint) put("by", "this endpoint");
  if (told.tiles) map.tile(told.tiles);
  if (told.continuous && !embedded) session.streams = new ContinuousQueries(told.continuous, () => at("token").value);
  at("continuous").hidden = !session.streams;
  at("whole").hidden = !embedded;
  const query = fromLink();
  at("offers").replaceChildren(...(page.examples.length ? page.examples : EXAMPLES).slice(0, 4).map((each) => queryButton(each.title, asked(each.query))));
  if (problem) session.say("bad", `the endpoint does not answer: ${problem.message}`);
  setInterval(tick, 250);
  if (query === null) {
    editor.text = page.examples[0]?.query ?? FIRST;
    if (!session.engine) cannot(editor.text);
    render();
  } else go(query);
  // After what was asked for.
  setTimeout(learn, query === null ? 0 : 1500);
}
begin();
