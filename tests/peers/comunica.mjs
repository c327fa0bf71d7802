// Reads a question per line from standard input, in JSON, has Comunica answer it, and prints the
// answer as a line of JSON. The argument is the folder node_modules to take Comunica from.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(process.argv[2] + '/');
const { QueryEngine } = require('@comunica/query-sparql');

function plain(term) {
  const { termType, value } = term;
  switch (termType) {
    case 'Literal':
      return { termType, value, language: term.language, direction: term.direction, datatype: term.datatype.value };
    case 'Quad':
      return { termType, parts: [term.subject, term.predicate, term.object].map(plain) };
    default:
      return { termType, value };
  }
}

async function answer(engine, { query, sources, options }) {
  const requests = [];
  const context = {
    ...options,
    sources,
    fetch: (url, init) => { requests.push(String(url.url ?? url)); return fetch(url, init); },
  };
  const found = {};
  // How many requests there were before the first answer.
  const came = () => { found.first ??= requests.length; };
  try {
    const result = await engine.query(query, context);
    if (result.resultType === 'bindings') {
      found.bindings = [];
      for await (const row of await result.execute()) {
        came();
        found.bindings.push(Object.fromEntries([...row].map(([name, term]) => ['?' + name.value, plain(term)])));
      }
    } else if (result.resultType === 'quads') {
      found.quads = [];
      for await (const quad of await result.execute()) {
        came();
        found.quads.push([quad.subject, quad.predicate, quad.object, quad.graph].map(plain));
      }
    } else {
      found.boolean = await result.execute();
      came();
    }
  } catch (error) {
    found.error = String(error.stack ?? error);
  }
  return { ...found, requests };
}

const engine = new QueryEngine();
for await (const line of createInterface({ input: process.stdin })) {
  // What one question learned of the server must not answer the next one.
  await engine.invalidateHttpCache();
  process.stdout.write(JSON.stringify(await answer(engine, JSON.parse(line))) + '\n');
}
