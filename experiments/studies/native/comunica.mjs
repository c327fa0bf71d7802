// Answers queries with Comunica as studies/processes.py does with our client: questions per line of
// standard input, answers per line of standard output. The argument is the folder node_modules.
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

async function answer(engine, query, source) {
  const result = await engine.query(query, { sources: [source] });
  const rows = [];
  if (result.resultType === 'bindings') {
    const names = (await result.metadata()).variables.map((v) => v.variable ?? v).sort((a, b) => (a.value < b.value ? -1 : 1));
    for await (const row of await result.execute()) rows.push(names.map((name) => text(row.get(name))));
  } else if (result.resultType === 'quads') {
    for await (const quad of await result.execute()) rows.push([quad.subject, quad.predicate, quad.object].map(text));
  } else {
    rows.push([String(await result.execute())]);
  }
  return rows;
}

async function timed(engine, { query, url, type, limit }) {
  const source = type ? { type, value: url } : url;
  const begin = performance.now();
  let found, timer;
  try {
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('the time is over')), 1000 * limit); });
    found = { rows: await Promise.race([answer(engine, query, source), late]) };
  } catch (error) {
    found = { error: String(error) };
  }
  clearTimeout(timer);
  return { ...found, seconds: (performance.now() - begin) / 1000 };
}

// A connection that breaks after its query was answered must not end the others.
process.on('unhandledRejection', (error) => console.error(error));
const engine = new QueryEngine();
for await (const line of createInterface({ input: process.stdin })) {
  const { id, questions } = JSON.parse(line);
  // What one question learned must not answer the next one, nor that of another client.
  await engine.invalidateHttpCache();
  const engines = questions.map((_, number) => (number ? new QueryEngine() : engine));
  const cpu = process.cpuUsage();
  const answers = await Promise.all(questions.map((each, number) => timed(engines[number], each)));
  const used = process.cpuUsage(cpu);
  process.stdout.write(JSON.stringify({ answers, id, cpu: (used.user + used.system) / 1e6 }) + '\n');
}
