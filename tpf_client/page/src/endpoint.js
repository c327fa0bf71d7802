// Queries are evaluated by the endpoint that serves this page.
import { follow } from "./events.js";
import { endpointOf, streamOf } from "./sharing.js";

const HIDDEN = 2000; // milliseconds

export class EndpointEngine {
  state = "ready";

  /** A browser has six connections to a host, so a tab that nobody sees gives its own back. */
  follow(query, settings, on) {
    let stop = null;
    let leaving = 0;
    const look = () => {
      clearTimeout(leaving);
      if (!document.hidden) stop ??= follow(streamOf(query, settings), on);
      else if (stop) leaving = setTimeout(leave, HIDDEN);
    };
    const leave = () => {
      stop?.();
      stop = null;
    };
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(leaving);
      leave();
    };
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
