// Runs `tpf_client.tab` in Python for the browser: messages in lines of standard input, events in
// lines of standard output.
// usage: node pyodide.mjs RUNTIME PACKAGES (a folder of files compressed by gzip; an archive)
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { gunzipSync } from "node:zlib";
import { pathToFileURL } from "node:url";

const [runtime, packages] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "pyodide-"));
const { files } = JSON.parse(readFileSync(join(runtime, "files.json")));
for (const [name] of files) writeFileSync(join(folder, name), gunzipSync(readFileSync(join(runtime, `${name}.gz`))));

const say = (told) => process.stdout.write(`${typeof told === "string" ? told : JSON.stringify(told)}\n`);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")));
const archive = readFileSync(packages);

async function start(options) {
  const began = performance.now();
  const python = await loadPyodide({ indexURL: `${folder}/`, checkAPIVersion: false, ...options });
  const loaded = performance.now();
  python.FS.writeFile("/packages.zip", archive);
  python.runPython("import sys; sys.path.append('/packages.zip'); from tpf_client import tab");
  return { python, load: loaded - began, import: performance.now() - loaded };
}

// As on the second visit to the page: from the memory of the first.
const first = await start({ _makeSnapshot: true });
const second = await start({ _loadSnapshot: first.python.makeMemorySnapshot() });
const tab = second.python.pyimport("tpf_client.tab");
say({ event: "ready", load: first.load, import: first.import, again: second.load + second.import });

const cpu = () => Object.values(process.cpuUsage()).reduce((sum, each) => sum + each) / 1e6; // seconds
async function run(program) {
  const before = cpu();
  try {
    say({ event: "python", value: await second.python.runPythonAsync(program), cpu: cpu() - before });
  } catch (error) {
    say({ event: "failed", error: String(error) });
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (message.python !== undefined) run(message.python);
  else if (message.stop !== undefined) tab.stop(message.stop);
  else tab.start(line, say);
});
lines.on("close", () => process.exit(0));
