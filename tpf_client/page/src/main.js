// The page: an editor, an answer that keeps itself true, and how long it is.
import { Answer } from "./answer.js";
import { Chart, numeric } from "./chart.js";
import { ContinuousQueries, Emissions, drawOperators, isContinuous } from "./continuous.js";
import { makeEditor } from "./editor.js";
import { follow } from "./events.js";
import { PointMap, coordinates } from "./map.js";
import { travel } from "./past.js";
import { drawPlan } from "./plan.js";
import { commandOf, csvOf, curlOf, endpointOf, jsonOf, linkOf, pythonOf, save, streamOf } from "./sharing.js";
import { Table } from "./table.js";
import { prefixesOf } from "./terms.js";

const at = (id) => document.getElementById(id);
const FIRST = "SELECT * WHERE {\n  ?subject ?predicate ?object\n}\nLIMIT 100";
const SAID = 5000;
const LOOK = 2000;

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

function state(kind, text) {
  const shown = at("state");
  if (shown.textContent === text && shown.dataset.kind === kind) return;
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
  if (stop && next !== null) at("next").textContent = `in ${Math.max(0, Math.ceil((next - now) / 1000))} s`;
  if (unsaid && performance.now() - lastSaid > SAID) {
    const { added, changed, removed } = unsaid;
    at("said").textContent = `${added} rows added, ${changed} changed, ${removed} removed; ${answer.live.length} in all`;
    lastSaid = performance.now();
    unsaid = null;
  }
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
    for (const name of ["requests", "bytes", "cached"]) at(name).textContent = told[name].toLocaleString("en");
    at("all").textContent = told.endpoint.requests.toLocaleString("en");
    answer.late(told.late ?? []);
    note();
    for (const text of told.warnings ?? []) {
      const line = document.createElement("li");
      line.textContent = text;
      at("warnings").append(line);
    }
    const late = told.late?.length ?? 0;
    if (late) state("some", `up to date, but ${late} ${late === 1 ? "row is" : "rows are"} late`);
    else state("live", "up to date");
  } else if (name === "plan") {
    plan = told;
    showPlan();
    return;
  } else if (name === "error") {
    next = told.next_look && Date.parse(told.next_look);
    if (told.next_look) state("late", `late: ${told.error}; trying again`);
    else {
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
  try {
    const response = await fetch(`${endpointOf(asked)}&at=${encodeURIComponent(instant.toISOString())}`, {
      headers: { Accept: "application/sparql-results+json" },
    });
    const text = await response.text();
    if (!past.back || query !== asked) return;
    if (!response.ok) {
      state("bad", `nobody tells of ${shown}: ${text.trim().slice(0, 300)}`);
      return;
    }
    const told = JSON.parse(text);
    const vars = told.head.vars ?? ["answer"];
    const added = told.results?.bindings ?? [{ answer: { type: "literal", value: String(told.boolean) } }];
    const places = /\bORDER\s+BY\b/i.test(asked) ? added.map((_, place) => place) : undefined;
    say(answer.begin({ vars, added, valid: added.map(() => [null, null]), places }));
    answer.late([]);
    at("rows").textContent = answer.live.length.toLocaleString("en");
    state("some", `as of ${shown}`);
    show();
  } catch (error) {
    if (past.back) state("bad", `no answer: ${error.message}`);
  }
}

const past = travel(at, { now: () => Date.now() + clock, ask: showPast, present: () => {
  remember();
  connect();
} });

function halt() {
  stop?.();
  stop = null;
  at("next").textContent = "–";
  at("pause").hidden = true;
}

function connect() {
  state("idle", "asking…");
  past.leave();
  at("pause").hidden = false;
  at("pause").textContent = "Pause";
  stop = follow(streamOf(query, settings()), {
    event: heard,
    refused(status, text) {
      halt();
      problem(text);
      state("bad", status === 400 ? "this query was refused" : `refused (${status})`);
    },
    lost(seconds, why) {
      next = null;
      at("next").textContent = "–";
      state("late", `${why}; asking again in ${seconds} s`);
    },
  });
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
  state("idle", "asking…");
  try {
    const headers = { Accept: "application/sparql-results+json, text/turtle;q=0.5" };
    const response = await fetch(endpointOf(query), { headers });
    const text = await response.text();
    if (!response.ok) {
      problem(text);
      state("bad", response.status === 400 ? "this query was refused" : `failed (${response.status})`);
      return;
    }
    const told = response.headers.get("Content-Type").startsWith("text/turtle")
      ? { head: { vars: ["turtle"] }, results: { bindings: text.split("\n").filter(Boolean).map((line) => ({ turtle: { type: "literal", value: line } })) } }
      : JSON.parse(text);
    const vars = told.head.vars ?? ["answer"];
    const rows = told.results?.bindings ?? [{ answer: { type: "literal", value: String(told.boolean) } }];
    answer.begin({ vars, added: rows, valid: rows.map(() => [null, null]) });
    at("rows").textContent = rows.length.toLocaleString("en");
    state("idle", "answered once");
    show();
  } catch (error) {
    state("bad", `no answer: ${error.message}`);
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  watch();
});
at("once").addEventListener("click", once);
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
  const sort = parameters.get("sort");
  table.order = sort ? { name: sort.replace(/^-/, ""), down: sort.startsWith("-") } : null;
  return parameters.get("query");
}

/** Completion works without the dataset's words, too. */
async function learn() {
  try {
    const response = await fetch("words.json");
    if (response.ok) editor.words = await response.json();
  } catch {
    // The endpoint is away, which its answers tell.
  }
}

async function begin() {
  let asked = fromLink();
  editor.text = asked ?? FIRST;
  try {
    const settings = await (await fetch("page.json")).json();
    datasets = settings.datasets;
    if (settings.tiles) map.tile(settings.tiles);
    if (settings.continuous) streams = new ContinuousQueries(settings.continuous, () => at("token").value);
    at("continuous").hidden = !streams;
    at("datasets").textContent = `over ${datasets.join(", ")}`;
    at("examples-label").hidden = !settings.examples.length;
    at("examples").append(new Option("choose…", ""), ...settings.examples.map((each) => new Option(each.title, each.query)));
    const wanted = new URLSearchParams(location.hash.slice(1)).get("example");
    asked ??= settings.examples[wanted - 1]?.query ?? null;
    editor.text = asked ?? settings.examples[0]?.query ?? FIRST;
  } catch (error) {
    state("bad", `the endpoint does not answer: ${error.message}`);
  }
  setInterval(tick, 250);
  learn();
  // A continuous query is registered by nobody but a person.
  if (asked !== null) go(asked);
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
