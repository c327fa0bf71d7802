// Reads documents with N3.js: a line of JSON with format, base and text each from standard input, and
// prints the quads of each as a line of JSON, in N-Quads. The argument is the folder node_modules to
// take N3.js from.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(process.argv[2] + '/');
const { Parser, Writer } = require('n3');

for await (const line of createInterface({ input: process.stdin })) {
  const { format, base, text } = JSON.parse(line);
  try {
    const quads = new Parser({ format, baseIRI: base }).parse(text);
    const writer = new Writer({ format: 'application/n-quads' });
    console.log(JSON.stringify({ quads: writer.quadsToString(quads) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
