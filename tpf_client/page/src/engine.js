// The engine: this project's client, as Python in a worker; one for all tabs where the browser can share it.
// The names of files are filled in when the page is put together (tpf_client/page_files.py).
const PYTHON = "@python@";
const PACKAGES = "@packages@";
const WHOLE = Number("@whole@"); // bytes of the files, decompressed
const SENT = Number("@sent@"); // and as they are sent
const AGAIN = 5000;
const SNAPSHOT = "snapshot";
const FILES = ["pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"];

const here = (path) => new URL(path, self.location.href).href;
const ports = new Set();
const fetchAsIs = self.fetch.bind(self);
let tab = null; // the program in Python
let told = { state: "loading", loaded: 0, total: SENT };
let count = 0;

function tell(now) {
  told = now;
  performance.mark(now.state);
  for (const port of ports) port.postMessage({ engine: now });
}

/** Counts the bytes of what is loaded as they come, beside whoever reads it. */
async function counted(copy) {
  let since = 0;
  for (let reader = copy.body.getReader(), part; !(part = await reader.read()).done; ) {
    count += part.value.byteLength;
    since += part.value.byteLength;
    if (since > 400_000 && told.state === "loading") {
      since = 0;
      tell({ state: "loading", loaded: Math.round(SENT * Math.min(count / WHOLE, 1)), total: SENT });
    }
  }
}

async function fetchCounted(address, options) {
  const response = await fetchAsIs(address, options);
  // The response itself is handed on: only of that do browsers keep what they compile.
  if (response.ok) counted(response.clone()).catch(() => {});
  return response;
}

const key = () => here(`${PYTHON}/${PACKAGES}`);

/** The memory of Python as it was on an earlier visit when everything had been imported. */
async function stored() {
  try {
    const found = await (await caches.open(SNAPSHOT)).match(key());
    return found ? new Uint8Array(await found.arrayBuffer()) : null;
  } catch {
    return null; // no caches where a page is not secure
  }
}

async function store(snapshot) {
  try {
    const cache = await caches.open(SNAPSHOT);
    for (const old of await cache.keys()) await cache.delete(old);
    if (snapshot) await cache.put(key(), new Response(snapshot));
  } catch {
    // It is imported again on the next visit.
  }
}

// A snapshot holds the state of the generator of random numbers, too.
const BEGIN = `
import random, sys
random.seed()
if "/packages.zip" not in sys.path:
    sys.path.append("/packages.zip")
from tpf_client import tab
`;

async function begin() {
  let snapshot = null;
  try {
    tell({ state: "loading", loaded: 0, total: SENT });
    count = 0;
    // All at once; whoever asks for one of them gets what is on its way.
    const coming = new Map([...FILES.map((each) => `${PYTHON}/${each}`), PACKAGES].map((each) => [here(each), fetchCounted(here(each))]));
    const code = import(here(`${PYTHON}/pyodide.asm.mjs`));
    self.fetch = (address, options) => coming.get(String(address)) ?? fetchAsIs(address, options);
    const packages = coming.get(here(PACKAGES)).then((response) => response.arrayBuffer());
    let loadPyodide;
    [{ loadPyodide }, snapshot] = await Promise.all([import(here(`${PYTHON}/pyodide.mjs`)), stored(), code]);
    const options = { indexURL: here(`${PYTHON}/`), checkAPIVersion: false };
    const python = await loadPyodide({ ...options, ...(snapshot ? { _loadSnapshot: snapshot } : { _makeSnapshot: true }) });
    const bytes = new Uint8Array(await packages);
    self.fetch = fetchAsIs;
    tell({ state: "starting" });
    python.FS.writeFile("/packages.zip", bytes);
    python.runPython(BEGIN);
    if (!snapshot) {
      const made = python.makeMemorySnapshot();
      setTimeout(() => store(made), AGAIN);
    }
    tab = python.pyimport("tpf_client.tab");
    tell({ state: "ready" });
    for (const port of ports) port.waiting.splice(0).forEach((each) => start(port, each));
  } catch (error) {
    self.fetch = fetchAsIs;
    if (snapshot) await store(null);
    tell({ state: "broken", error: String(error.message ?? error).trim().split("\n").at(-1) });
    setTimeout(begin, AGAIN);
  }
}

function start(port, message) {
  const { id } = message;
  const name = `${port.number}/${id}`;
  port.running.set(id, name);
  try {
    tab.start(JSON.stringify({ ...message, id: name }), (text) => {
      if (port.running.has(id)) port.postMessage({ id, text });
    });
  } catch (error) {
    port.postMessage({ id, text: JSON.stringify({ event: "failed", data: { error: String(error.message) } }) });
  }
}

function stop(port, id) {
  port.waiting = port.waiting.filter((each) => each.id !== id);
  const name = port.running.get(id);
  port.running.delete(id);
  if (name !== undefined) tab.stop(name);
}

function leave(port) {
  for (const id of [...port.running.keys()]) stop(port, id);
  ports.delete(port);
}

let numbers = 0;

function welcome(port) {
  Object.assign(port, { number: ++numbers, waiting: [], running: new Map() });
  ports.add(port);
  port.onmessage = ({ data }) => {
    if (data.start) {
      if (tab) start(port, data.start);
      else port.waiting.push(data.start);
    } else if (data.stop !== undefined) stop(port, data.stop);
    // A tab holds this lock as long as it is there.
    else if (data.lock) navigator.locks.request(data.lock, () => leave(port));
  };
  port.postMessage({ engine: told });
}

if ("onconnect" in self) self.onconnect = ({ ports: [port] }) => welcome(port);
else welcome(self);
begin();
