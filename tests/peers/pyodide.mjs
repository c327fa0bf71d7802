// Runs `tpf_client.tab` in Python for the browser: messages in lines of standard input, events in
// lines of standard output.
// usage: node pyodide.mjs RUNTIME PACKAGE… (a folder of files compressed by gzip; folders)
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import { gunzipSync } from "node:zlib";
import { pathToFileURL } from "node:url";

const [runtime, ...packages] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "pyodide-"));
const { files } = JSON.parse(readFileSync(join(runtime, "files.json")));
for (const [name] of files) writeFileSync(join(folder, name), gunzipSync(readFileSync(join(runtime, `${name}.gz`))));

const say = (told) => process.stdout.write(`${typeof told === "string" ? told : JSON.stringify(told)}\n`);
const began = performance.now();
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: `${folder}/`, checkAPIVersion: false });
const loaded = performance.now();
for (const each of packages) {
  const place = `/packages/${basename(each)}`;
  python.FS.mkdirTree(place);
  python.mountNodeFS(place, each);
}
python.runPython("import sys; sys.path.insert(0, '/packages'); sys.dont_write_bytecode = True");
const tab = python.pyimport("tpf_client.tab");
say({ event: "ready", load: loaded - began, import: performance.now() - loaded });

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (message.stop !== undefined) tab.stop(message.stop);
  else tab.start(line, say);
});
lines.on("close", () => process.exit(0));
