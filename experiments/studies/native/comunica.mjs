// Answers queries with Comunica as studies/processes.py does with our client: a question per line of
// standard input, an answer per line of standard output. The argument is the folder node_modules.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(process.argv[2] + '/');
const { QueryEngine } = require('@comunica/query-sparql');
const XSD_STRING = 'http://www.w3.org/2001/XMLSchema#string';
const ESCAPES = { '"': '\\"', '\\': '\\\\', '\n': '\\n', '\r': '\\r' };

function text(term) {
  if (term === undefined) return null;
  if (term.termType === 'NamedNode') return `<${term.value}>`;
  if (term.termType === 'BlankNode') return `_:${term.value}`;
  const quoted = `"${term.value.replace(/["\\\n\r]/g, (c) => ESCAPES[c])}"`;
  if (term.language) return `${quoted}@${term.language}`;
  return term.datatype.value === XSD_STRING ? quoted : `${quoted}^^<${term.datatype.value}>`;
}

async function answer(engine, query, source, rowCame) {
  const result = await engine.query(query, { sources: [source] });
  const rows = { push(row) { rowCame(); all.push(row); } }, all = [];
  if (result.resultType === 'bindings') {
    const names = (await result.metadata()).variables.map((v) => v.variable ?? v).sort((a, b) => (a.value < b.value ? -1 : 1));
    for await (const row of await result.execute()) rows.push(names.map((name) => text(row.get(name))));
  } else if (result.resultType === 'quads') {
    for await (const quad of await result.execute()) rows.push([quad.subject, quad.predicate, quad.object].map(text));
  } else {
    rows.push([String(await result.execute())]);
  }
  return all;
}

const engine = new QueryEngine();
for await (const line of createInterface({ input: process.stdin })) {
  const { id, query, url, type } = JSON.parse(line);
  const source = type ? { type, value: url } : url;
  // What one question learned must not answer the next one.
  await engine.invalidateHttpCache();
  const begin = performance.now(), cpu = process.cpuUsage();
  let found, first = null;
  try {
    found = { rows: await answer(engine, query, source, () => { first ??= (performance.now() - begin) / 1000; }) };
  } catch (error) {
    found = { error: String(error) };
  }
  const used = process.cpuUsage(cpu);
  found.id = id;
  found.first = first;
  found.seconds = (performance.now() - begin) / 1000;
  found.cpu = (used.user + used.system) / 1e6;
  process.stdout.write(JSON.stringify(found) + '\n');
}
