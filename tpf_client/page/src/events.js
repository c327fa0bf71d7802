// Follows an answer: server-sent events by fetch, because that tells why a request was refused.
import { createParser } from "eventsource-parser";

const FIRST = 1000;
const LONGEST = 30000;
const PASSES = new Set([408, 425, 429]);
const SILENCE = 40000; // the endpoint says something every 15 s

/**
 * Follow a query until stopped; it comes back by itself when the connection breaks.
 * @param {string} url
 * @param {{event: (name: string, data: object) => void, refused: (status: number, text: string) => void,
 *          lost: (seconds: number) => void, headers?: object}} on
 * @param {string | null} last the id of an event after which to begin
 */
export function follow(url, on, last = null) {
  let stopped = false;
  let pause = FIRST;
  let over = false;
  let aborting = new AbortController();
  let timer = 0;

  async function read() {
    aborting = new AbortController();
    let silence = 0;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => aborting.abort(), SILENCE);
    };
    try {
      const headers = { ...on.headers, Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
      const response = await fetch(url, { headers, signal: aborting.signal, cache: "no-store" });
      if (!response.ok) {
        const text = await response.text();
        if (stopped) return;
        // A query that is wrong stays wrong; a server that is busy or away may come back.
        if (response.status < 500 && !PASSES.has(response.status)) {
          stopped = true;
          on.refused(response.status, text);
          return;
        }
        again(text);
        return;
      }
      const parser = createParser({
        onEvent({ id, event, data }) {
          last = id ?? last;
          pause = FIRST;
          const told = JSON.parse(data);
          over = event === "error" && told.next_look === null;
          on.event(event ?? "message", told);
        },
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        alive();
        const { done, value } = await reader.read();
        if (done || stopped) break;
        parser.feed(value);
      }
    } catch (error) {
      if (stopped) return;
      if (!(error instanceof TypeError || error.name === "AbortError")) throw error;
    } finally {
      clearTimeout(silence);
    }
    if (!stopped && !over) again("the connection ended");
  }

  function again(why) {
    on.lost(Math.round(pause / 1000), why);
    timer = setTimeout(read, pause * (0.75 + Math.random() / 2));
    pause = Math.min(pause * 2, LONGEST);
  }

  // A page that Back may bring again would keep its connection, of which a host has six.
  const leave = () => aborting.abort();
  addEventListener("pagehide", leave);
  read();
  return () => {
    removeEventListener("pagehide", leave);
    stopped = true;
    clearTimeout(timer);
    aborting.abort();
  };
}
