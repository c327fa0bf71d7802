// Compiles the modules in an archive by Python for browsers: `node compile.mjs RUNTIME IN OUT`.
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [runtime, source, target] = process.argv.slice(2).map((each) => resolve(each));
const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`));
// Lines of errors are kept, columns are not: they are a fifth of the bytes.
const env = { HOME: "/", PYTHONNODEBUGRANGES: "1" };
const python = await loadPyodide({ indexURL: `${runtime}/`, checkAPIVersion: false, env });
const compiled = python.runPython(`
import importlib.util, io, marshal, zipfile

def compiled(data):
    # Not compared with its source, which is not there (PEP 552).
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data.to_bytes())) as before, zipfile.ZipFile(made, "w") as after:
        for entry in before.infolist():
            name, content = entry.filename, before.read(entry)
            if name.endswith(".py"):
                code = compile(content, name, "exec", dont_inherit=True, optimize=2)
                name, content = name + "c", head + marshal.dumps(code)
            after.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return made.getvalue()
compiled
`);
writeFileSync(target, compiled(new Uint8Array(readFileSync(source))).toJs());
process.exit(0);
