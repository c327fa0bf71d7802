// Queries are evaluated by the endpoint that serves this page.
import { follow } from "./events.js";
import { endpointOf, streamOf } from "./sharing.js";

export class EndpointEngine {
  state = "ready";

  follow(query, settings, on) {
    return follow(streamOf(query, settings), on);
  }

  async ask(query, at, on) {
    const stopping = new AbortController();
    on.begun?.(() => stopping.abort());
    const headers = { Accept: "application/sparql-results+json, text/turtle;q=0.5" };
    const past = at ? `&at=${encodeURIComponent(at.toISOString())}` : "";
    const response = await fetch(endpointOf(query) + past, { headers, signal: stopping.signal });
    const text = await response.text();
    if (!response.ok) throw Object.assign(new Error(text), { status: response.status });
    if (response.headers.get("Content-Type").startsWith("text/turtle")) {
      const added = text.split("\n").filter(Boolean).map((line) => ({ turtle: { type: "literal", value: line } }));
      on.rows({ vars: ["turtle"], added });
      return {};
    }
    const told = JSON.parse(text);
    if (told.boolean !== undefined) on.rows({ boolean: told.boolean });
    else on.rows({ vars: told.head.vars, added: told.results.bindings });
    return {};
  }

  async words() {
    const response = await fetch("words.json");
    return response.ok ? response.json() : null;
  }
}
