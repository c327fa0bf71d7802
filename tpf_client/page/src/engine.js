// The engine: this project's client, as Python in a worker; one for all tabs where the browser can share it.
// The names of files are filled in when the page is put together (tpf_client/page_files.py).
const PYTHON = "@python@";
const PACKAGES = "@packages@";
const WHOLE = Number("@whole@"); // bytes of the files, decompressed
const SENT = Number("@sent@"); // and as they are sent
const AGAIN = 5000;
const PAUSE = 25; // milliseconds
const COMPILED = "compiled";

const here = (path) => new URL(path, self.location.href).href;
const ports = new Set();
const fetchAsIs = self.fetch.bind(self);
let tab = null; // the program in Python
let told = { state: "loading", loaded: 0, total: SENT };
let count = 0;

function tell(now) {
  told = now;
  for (const port of ports) port.postMessage({ engine: now });
}

/** Counts the bytes of what is loaded as they come, beside whoever reads it. */
async function counted(copy) {
  let since = 0;
  for (let reader = copy.body.getReader(), part; !(part = await reader.read()).done; ) {
    count += part.value.byteLength;
    since += part.value.byteLength;
    if (since > 100_000 && told.state === "loading") {
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

const LIBRARY = "python_stdlib.zip";
const key = () => here(`${PYTHON}/${PACKAGES}`);

/** The library with what was compiled on an earlier visit: compiling is most of what starting takes. */
async function stored() {
  try {
    return (await (await caches.open(COMPILED)).match(key())) ?? null;
  } catch {
    return null; // no caches where a page is not secure
  }
}

/** Keeps what was compiled for the next visit; in small steps, because queries go on meanwhile. */
async function store(python) {
  try {
    const cache = await caches.open(COMPILED);
    const steps = python.runPython(COMPILE);
    let step = steps.next();
    while (!step.value) {
      await new Promise((done) => setTimeout(done, PAUSE));
      step = steps.next();
    }
    const bytes = step.value.toJs();
    step.value.destroy();
    steps.destroy();
    for (const old of await cache.keys()) await cache.delete(old);
    await cache.put(key(), new Response(bytes));
  } catch {
    // It is compiled again on the next visit.
  }
}

// The library as an archive, with every module beside it that was loaded, compiled.
const COMPILE = `
def compiling():
    import importlib.util, io, marshal, sys, zipfile
    # A file of the first kind that is not compared with its source (PEP 552).
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    library = next(each for each in sys.path if each.endswith("/python314.zip"))
    with open(library, "rb") as file:
        made = io.BytesIO(file.read())
    with zipfile.ZipFile(made, "a") as archive:
        for name, module in sorted(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            loader = getattr(spec, "loader", None)
            if not hasattr(loader, "archive"):
                continue
            path = spec.name.replace(".", "/") + ("/__init__" if loader.is_package(spec.name) else "")
            archive.writestr(path + ".pyc", head + marshal.dumps(loader.get_code(spec.name)))
            yield None
    yield made.getvalue()
compiling()
`;

const BEGIN = `
import sys
if "/packages.zip" not in sys.path:
    sys.path.append("/packages.zip")
from tpf_client import tab
tab
`;

async function begin() {
  try {
    tell({ state: "loading", loaded: 0, total: SENT });
    count = 0;
    const packages = fetchCounted(here(PACKAGES)).then((response) => response.arrayBuffer());
    const [{ loadPyodide }, compiled] = await Promise.all([import(here(`${PYTHON}/pyodide.mjs`)), stored()]);
    self.fetch = (address, options) => (compiled && String(address).endsWith(`/${LIBRARY}`) ? Promise.resolve(compiled) : fetchCounted(address, options));
    const python = await loadPyodide({ indexURL: here(`${PYTHON}/`), checkAPIVersion: false });
    const bytes = new Uint8Array(await packages);
    self.fetch = fetchAsIs;
    tell({ state: "starting" });
    python.FS.writeFile("/packages.zip", bytes);
    tab = python.runPython(BEGIN);
    tell({ state: "ready" });
    for (const port of ports) port.waiting.splice(0).forEach((each) => start(port, each));
    if (!compiled) setTimeout(() => store(python), AGAIN);
  } catch (error) {
    self.fetch = fetchAsIs;
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
