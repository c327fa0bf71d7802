// Reads the Linked Data Event Stream at a URL with ldes-client, in order, and prints each member as
// a line of JSON: its name, what it is a version of, when it came, and its quads. The arguments are
// the folder node_modules to take the client from, and the URL.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , modules, url] = process.argv;
// Node takes the file for CommonJS, which does not load, where it is asked by the package's name.
const { intoConfig, replicateLDES } = await import(
  pathToFileURL(join(modules, 'ldes-client/dist/lib/client.js'))
);

const client = replicateLDES(intoConfig({ url, polling: false }), 'ascending');
client.on('error', (error) => { console.error(String(error)); process.exitCode = 1; });
for await (const member of client.stream()) {
  const { id, quads, timestamp, isVersionOf } = member;
  console.log(JSON.stringify({
    id: id.value,
    timestamp: timestamp instanceof Date ? timestamp.toISOString() : timestamp,
    isVersionOf,
    quads: quads.map(({ subject, predicate, object }) => [subject.value, predicate.value, object.value]),
  }));
}
