// Builds the page: `npm ci && node build.mjs [FOLDER]` (default: built). Same input, same bytes.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { build } from "esbuild";
import { mesh } from "topojson-client";

const out = process.argv[2] ?? "built";
await mkdir(out, { recursive: true });
const options = { bundle: true, minify: true, charset: "utf8", legalComments: "none", metafile: true };
const script = await build({
  ...options,
  entryPoints: ["src/main.js"],
  outfile: `${out}/page.js`,
  format: "esm",
  target: "es2022",
  inject: ["src/leaflet.js"],
});
// What runs beside the page: the worker that evaluates queries, and the one that keeps its files.
for (const name of ["engine", "offline"]) {
  await build({ ...options, entryPoints: [`src/${name}.js`], outfile: `${out}/${name}.js`, format: "esm", target: "es2022" });
}
await build({ ...options, entryPoints: ["src/page.css"], outfile: `${out}/page.css`, loader: { ".png": "empty" } });
await writeFile(`${out}/index.html`, await readFile("src/index.html"));

// The outline of countries: lines of steps in tenths of a degree, longitude and latitude in turn.
const world = JSON.parse(await readFile("node_modules/world-atlas/countries-110m.json", "utf8"));
const lines = mesh(world, world.objects.countries).coordinates.map((line) => {
  let before = [0, 0];
  return line.flatMap((place) => {
    const here = place.map((each) => Math.round(each * 10));
    const step = here.map((each, n) => each - before[n]);
    before = here;
    return step;
  });
});
await writeFile(`${out}/outline.json`, JSON.stringify(lines));

// Every package of which something is in these files, with its licence.
const folders = new Set(["node_modules/world-atlas"]);
for (const input of Object.keys(script.metafile.inputs)) {
  const found = input.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//);
  if (found) folders.add(found[1]);
}
const licences = [];
for (const folder of [...folders].sort()) {
  const { name, version, license } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? await readFile(`${folder}/${file}`, "utf8") : "";
  licences.push(`${name} ${version} (${license})\n\n${text.trim()}\n`);
}
await writeFile(`${out}/licences.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));

// What it was built from: so that a forgotten build is noticed where there is no npm.
const sources = {};
for (const file of ["build.mjs", "package-lock.json", ...(await readdir("src")).map((n) => `src/${n}`)].sort()) {
  sources[file] = createHash("sha256").update(await readFile(file)).digest("hex");
}
await writeFile(`${out}/sources.json`, `${JSON.stringify(sources, null, 1)}\n`);
