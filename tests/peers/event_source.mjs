// Follows server-sent events at a URL with the EventSource of npm and prints each as a line of JSON.
// The arguments are the folder node_modules to take it from, the URL, and how many events to wait for.
import { createRequire } from 'node:module';

const [, , modules, url, count] = process.argv;
const { EventSource } = createRequire(modules + '/')('eventsource');

const source = new EventSource(url);
let left = Number(count);
source.onmessage = ({ lastEventId, data }) => {
  console.log(JSON.stringify({ id: lastEventId, data: JSON.parse(data) }));
  left -= 1;
  if (left === 0) source.close();
};
// It tries again by itself, with the number of the last event, where the connection ends.
source.onerror = ({ code, message }) => {
  if (code >= 400) { console.error(message); process.exit(1); }
};
