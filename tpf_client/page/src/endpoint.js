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

  /** Answers once; rows are told as they come: each is a line of the response. */
  async ask(query, at, on) {
    const stopping = new AbortController();
    on.begun?.(() => stopping.abort());
    const headers = { Accept: "application/sparql-results+json, text/turtle;q=0.5" };
    const past = at ? `&at=${encodeURIComponent(at.toISOString())}` : "";
    const response = await fetch(endpointOf(query) + past, { headers, signal: stopping.signal });
    if (!response.ok) throw Object.assign(new Error(await response.text()), { status: response.status });
    const turtle = response.headers.get("Content-Type").startsWith("text/turtle");
    let vars = turtle ? ["turtle"] : null;
    let rest = "";
    const tell = (lines) => {
      const added = [];
      for (const line of lines.filter(Boolean)) {
        if (turtle) added.push({ turtle: { type: "literal", value: line } });
        else if (vars === null) {
          const told = JSON.parse(line.endsWith("[") ? `${line}]}}` : line);
          if (told.boolean !== undefined) added.push({ answer: { type: "literal", value: String(told.boolean) } });
          vars = told.head.vars ?? ["answer"];
        } else if (line.startsWith("{")) added.push(JSON.parse(line.replace(/,$/, "")));
      }
      if (added.length) on.rows({ vars, added });
    };
    for (let reader = response.body.pipeThrough(new TextDecoderStream()).getReader(), part; !(part = await reader.read()).done; ) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      tell(lines);
    }
    tell([rest]);
    on.rows({ vars, added: [] });
    return {};
  }

  async #estimate(query, syntax) {
    const response = await fetch(`estimate?${new URLSearchParams({ query, syntax })}`);
    if (!response.ok) throw Object.assign(new Error(await response.text()), { status: response.status });
    return response.json();
  }

  /** About how many facts a query reads (`facts`, or null), and whether some are `labelled`. */
  estimate(query) {
    return this.#estimate(query, false);
  }

  /** Parses a query; an error says what is wrong. */
  check(query) {
    return this.#estimate(query, true);
  }

  async words() {
    const response = await fetch("words.json");
    const told = response.ok ? await response.json() : { predicates: [], classes: [] };
    const counted = (words) => words.map((each) => (Array.isArray(each) ? each : [each, null]));
    return { predicates: counted(told.predicates), classes: counted(told.classes), prefixes: {} };
  }
}
