// Queries are evaluated in this browser: by a worker, which all tabs share where they can.
const ENGINE = document.documentElement.dataset.engine;

/** Why queries cannot be evaluated here; null: they can. */
export function whyNot() {
  if (!ENGINE) return "This page was installed without Python for browsers, so it cannot evaluate queries.";
  if (typeof WebAssembly !== "object") return "This browser has no WebAssembly (or it is switched off), so it cannot evaluate queries.";
  if (typeof Worker !== "function") return "This browser has no web workers, so it cannot evaluate queries.";
  return null;
}

export class TabEngine {
  /**
   * @param {() => string[]} sources the URLs of the datasets to ask
   * @param {(told: {state: string, loaded?: number, total?: number, error?: string}) => void} progress
   */
  constructor(sources, progress) {
    this.sources = sources;
    this.progress = progress;
    this.waiting = new Map(); // what is done with the events of a query
    this.count = 0;
    this.state = "loading";
    this.open();
    addEventListener("pagehide", () => [...this.waiting.keys()].forEach((id) => this.stop(id)));
  }

  open() {
    const address = new URL(ENGINE, location.href);
    if (typeof SharedWorker === "function") {
      const worker = new SharedWorker(address, { type: "module" });
      this.port = worker.port;
      worker.onerror = () => this.alone(address);
      this.port.start();
    } else this.alone(address);
    this.listen();
    if (navigator.locks) {
      const name = `tab ${crypto.randomUUID()}`;
      // Held until the tab is gone, which is how the worker knows.
      navigator.locks.request(name, () => {
        this.port.postMessage({ lock: name });
        return new Promise(() => {});
      });
    }
  }

  /** A worker of this tab alone. */
  alone(address) {
    this.port = new Worker(address, { type: "module" });
    this.port.onerror = (event) => this.progress({ state: "broken", error: event.message || "the worker does not start" });
    this.listen();
    for (const { message } of this.waiting.values()) this.port.postMessage({ start: message });
  }

  listen() {
    this.port.onmessage = ({ data }) => {
      if (data.engine) {
        this.state = data.engine.state;
        this.progress(data.engine);
        return;
      }
      const { event, data: told } = JSON.parse(data.text);
      this.waiting.get(data.id)?.heard(event, told);
    };
  }

  begin(message, heard) {
    const id = ++this.count;
    const whole = { id, sources: this.sources(), ...message };
    this.waiting.set(id, { message: whole, heard });
    this.port.postMessage({ start: whole });
    return id;
  }

  stop(id) {
    if (this.waiting.delete(id)) this.port.postMessage({ stop: id });
  }

  /** Follows an answer until what it returns is called. */
  follow(query, settings, on) {
    const id = this.begin({ mode: "watch", query, ...settings }, (name, told) => {
      if (name === "refused" || name === "failed") {
        this.waiting.delete(id);
        on.refused(told.status ?? 500, told.text ?? told.error);
      } else on.event(name, told);
    });
    return () => this.stop(id);
  }

  /** Answers once, perhaps as of an instant; `on.rows` gets rows as they come. */
  ask(query, at, on) {
    return new Promise((resolve, reject) => {
      const message = { mode: "once", query, ...(at && { at: at.toISOString() }) };
      const id = this.begin(message, (name, told) => {
        if (name === "rows" || name === "work" || name === "plan") on[name]?.(told);
        else {
          this.waiting.delete(id);
          if (name === "done") resolve(told);
          else reject(Object.assign(new Error(told.text ?? told.error), { status: name === "refused" ? 400 : 502 }));
        }
      });
      on.begun?.(() => {
        this.stop(id);
        reject(Object.assign(new Error("stopped"), { stopped: true }));
      });
    });
  }

  /** The one event of a question. */
  #told(message) {
    return new Promise((resolve, reject) => {
      const id = this.begin(message, (name, told) => {
        this.waiting.delete(id);
        if (name === "refused" || name === "failed") reject(Object.assign(new Error(told.text ?? told.error), { status: told.status ?? 502 }));
        else resolve(told);
      });
    });
  }

  /** About how many facts a query reads (`facts`, or null), and whether some are `labelled`. */
  estimate(query) {
    return this.#told({ mode: "estimate", query });
  }

  /** Parses a query; an error says what is wrong. */
  check(query) {
    return this.#told({ mode: "check", query });
  }

  /** The words of the datasets: exactly, from who serves the page; of others, those in a sample. */
  async words(served) {
    const [own, foreign] = [true, false].map((ours) => this.sources().filter((each) => served.includes(each) === ours));
    const parts = [];
    if (own.length) {
      const response = await fetch(`words.json?${new URLSearchParams(own.map((each) => ["dataset", each.split("/").at(-1)]))}`);
      if (response.ok) parts.push(await response.json());
      else foreign.push(...own);
    }
    if (foreign.length) parts.push(await this.#told({ mode: "words", sources: foreign }));
    const merged = (name) => parts.flatMap((part) => part[name].map((each) => (Array.isArray(each) ? each : [each, null])));
    return { predicates: merged("predicates"), classes: merged("classes"), prefixes: Object.assign({}, ...parts.map((part) => part.prefixes)) };
  }
}
