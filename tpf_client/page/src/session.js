// What is asked and how far it is: the state of the page, without its looks.
import { Answer } from "./answer.js";
import { Emissions, isContinuous } from "./continuous.js";
import { follow } from "./events.js";

const LATE = 1500; // milliseconds after which an answer that is not renewed is late,
const BAD = 10_000; // and after which that is a failure
const LARGE = 50_000; // facts for which one is asked before they are watched
const PREVIEW = 2_000; // facts from which on rows are shown before all of them are there
const LOGGED = 200; // changes that are listed

/** The answer of ASK as a row. */
function tabled(told) {
  if (told.boolean === undefined) return told;
  return { ...told, vars: ["answer"], added: [{ answer: { type: "literal", value: String(told.boolean) } }], valid: [[null, null]] };
}

export class Session {
  /** @param {() => void} changed called when anything here has */
  constructor(changed) {
    this.changed = changed;
    this.engine = null; // what evaluates queries
    this.streams = null; // the continuous queries of the server, where it has some
    this.settings = () => ({}); // of what is watched
    this.loading = null; // what is to be said while the engine is not ready
    this.clock = 0; // the server's, less ours
    this.number = 0; // of what is asked
    this.beat = 0; // how often the answer was looked at
    this.reset("");
    this.say("idle", "nothing asked yet");
  }

  reset(query) {
    this.stop();
    this.query = query;
    this.answer = new Answer();
    this.plan = this.hosted = this.estimate = this.work = this.foreseen = null;
    this.least = null; // until when all holds at least
    this.answered = null; // when it was answered once
    this.dynamic = null; // whether anything is labelled
    this.lastMatch = null; // when there last were rows, of those that were watched
    this.warnings = [];
    this.log = [];
    this.problem = "";
  }

  now() {
    return Date.now() + this.clock;
  }

  say(kind, text) {
    this.said = { kind, text };
  }

  /** Ends what is under way, with what there is of its answer. */
  stop() {
    this.number += 1;
    this.ending?.();
    this.ending = null;
    this.mode = "idle"; // or asking, once, watch, hosted, past
    this.due = null; // what the last evaluation has said: the answer is looked at again by then
    this.next = null;
    this.failed = ""; // why the last evaluation gave nothing
  }

  /** Whether something is under way that can be stopped. */
  get running() {
    return this.mode !== "idle" && this.mode !== "past";
  }

  /** How true the answer is at this moment, whoever is silent. */
  status() {
    if (this.mode !== "idle" && this.mode !== "past" && !this.due && this.loading) return this.loading;
    if (this.mode !== "watch" || !this.due) return this.said;
    const { due, failed } = this;
    const now = this.now();
    const over = Math.max(due.until === null ? 0 : now - due.until, due.next === null ? 0 : now - due.next - LATE);
    const seconds = `${Math.round(over / 1000)} s`;
    if (over > BAD) return { kind: "bad", text: `out of date for ${seconds}${failed && `: ${failed}`}` };
    if (failed) return { kind: "late", text: `late: ${failed}; trying again` };
    if (over > LATE) return { kind: "late", text: `late by ${seconds}` };
    if (over > 0) return { kind: "due", text: `late by ${(over / 1000).toFixed(1)} s: looking again…` };
    return due;
  }

  /**
   * Asks a query.
   * @param {string} query
   * @param {"auto" | "watch" | "anyway" | "once"} how by what is labelled; kept up to date, if that is not large;
   *   or however large it is; or once
   */
  async run(query, how = "auto") {
    this.reset(query);
    if (this.streams && isContinuous(query)) return this.register();
    if (how === "once") return this.once();
    if (how === "anyway") return this.watch(null);
    this.mode = "asking";
    this.say("idle", "looking how much this reads…");
    this.changed();
    const number = this.number;
    let estimate = null;
    try {
      estimate = await this.engine.estimate(query);
    } catch (error) {
      if (number !== this.number) return;
      if (error.status === 400) return this.refuse(400, error.message);
      // Who is away now may be back when it is watched, which is tried again.
    }
    if (number !== this.number) return;
    this.plan = estimate?.plan ?? null;
    if (how === "auto" && estimate && !estimate.labelled) return this.once();
    if (estimate?.facts > LARGE) {
      this.stop();
      this.estimate = estimate;
      this.say("idle", "not asked yet");
      return this.changed();
    }
    this.watch(estimate);
  }

  /** Watches a query; meanwhile the rows of a large one are shown as they come. */
  watch(estimate) {
    this.stop();
    const number = this.number;
    this.mode = "watch";
    this.say("idle", "asking…");
    let preview = null;
    const on = {
      event: (name, told) => {
        if (name === "initial" && preview) {
          preview();
          preview = null;
          this.answer = new Answer();
        }
        this.heard(name, told);
        this.changed();
      },
      refused: (status, text) => this.refuse(status, text),
      lost: (seconds, why) => {
        this.fail(why, null);
        this.changed();
      },
    };
    const stop = this.engine.follow(this.query, this.settings(), on);
    this.ending = () => {
      stop();
      preview?.();
    };
    if (estimate === null || estimate?.facts > PREVIEW) {
      const rows = (told) => {
        if (number !== this.number || this.due || !preview) return;
        this.answer.append(tabled(told));
        this.say("idle", `reading: ${this.answer.live.length.toLocaleString("en")} rows so far`);
        this.changed();
      };
      this.engine.ask(this.query, null, { begun: (stopping) => (preview = stopping), rows }).catch(() => {});
    }
    this.changed();
  }

  /** Looks again at once. */
  again() {
    const [answer, plan] = [this.answer, this.plan];
    this.watch(undefined);
    Object.assign(this, { answer, plan });
  }

  refuse(status, text) {
    this.stop();
    this.problem = text;
    this.say("bad", status === 400 ? "this query was refused" : `refused (${status})`);
    this.changed();
  }

  fail(why, next) {
    this.failed = why;
    this.next = next;
    this.due ??= { until: this.now(), next: null, kind: "late", text: "" };
    this.due = { ...this.due, next: null };
  }

  /** Notes what an update did to the answer. */
  note(counts, first) {
    const now = this.now();
    if (this.answer.live.length || counts.removed) this.lastMatch = now;
    const { added, changed, removed } = counts;
    if (!first && added + changed + removed) {
      this.log.unshift({ at: now, added, changed, removed });
      this.log.length = Math.min(this.log.length, LOGGED);
    }
  }

  heard(name, told) {
    if (told.now) this.clock = Date.parse(told.now) - Date.now();
    if (name === "initial" || name === "update") {
      const first = this.due === null;
      const update = tabled(told);
      if (name === "initial") this.note(this.answer.begin(update), first);
      else {
        // What ASK said before is replaced.
        const removed = told.boolean === undefined ? told.removed : this.answer.live.map((row) => row.cells);
        this.note(this.answer.update({ ...update, removed }), false);
      }
    } else if (name === "up-to-date") {
      this.least = told.valid_until && Date.parse(told.valid_until);
      this.next = told.next_look && Date.parse(told.next_look);
      this.dynamic = told.dynamic;
      this.beat += 1;
      this.work = told;
      this.warnings.push(...(told.warnings ?? []));
      this.answer.late(told.late ?? []);
      if (this.answer.live.length) this.lastMatch = this.now();
      const late = told.late?.length ?? 0;
      this.failed = "";
      this.due = { until: this.least, next: this.next, kind: "live", text: "up to date" };
      if (late) Object.assign(this.due, { kind: "some", text: `up to date, but ${late} ${late === 1 ? "row is" : "rows are"} late` });
    } else if (name === "work") this.working(told);
    else if (name === "plan") this.plan = told;
    else if (name === "error") {
      if (told.next_look) this.fail(told.error, Date.parse(told.next_look));
      else {
        this.stop();
        this.say("bad", `ended: ${told.error}`);
      }
    }
  }

  working(told) {
    this.work = told;
    const rows = this.answer.live.length;
    if (!this.due) this.say("idle", `reading: ${rows ? `${rows.toLocaleString("en")} rows from ` : ""}${told.requests.toLocaleString("en")} requests so far`);
  }

  /** Answers it once; rows are there as they come. */
  async once() {
    this.stop();
    const number = this.number;
    this.mode = "once";
    this.say("idle", "asking…");
    this.changed();
    const mine = (action) => (told) => {
      if (number !== this.number) return;
      action(told);
      this.changed();
    };
    try {
      const told = await this.engine.ask(this.query, null, {
        begun: (stopping) => (this.ending = stopping),
        work: mine((each) => this.working(each)),
        rows: mine((each) => {
          this.answer.append(tabled(each));
          this.say("idle", `reading: ${this.answer.live.length.toLocaleString("en")} rows so far`);
        }),
      });
      if (number !== this.number) return;
      this.ending = null;
      this.stop();
      if (told.endpoint) this.work = told;
      this.answered = this.now();
      this.beat += 1;
      this.say("idle", "answered once");
    } catch (error) {
      if (number !== this.number) return;
      this.stop();
      if (error.status) this.problem = error.message;
      this.say("bad", error.status === 400 ? "this query was refused" : error.status ? `failed (${error.status})` : `no answer: ${error.message}`);
    }
    this.changed();
  }

  /** Gets the plan of what was asked once, where somebody looks at it. */
  async foresee() {
    const { query, number } = this;
    if (this.plan || this.foreseen === query) return;
    this.foreseen = query;
    const estimate = await this.engine.estimate(query).catch(() => null);
    if (number !== this.number || this.plan) return;
    this.plan = estimate?.plan ?? null;
    this.changed();
  }

  /** The rows of a query that is asked beside. */
  async rowsOf(query) {
    const rows = [];
    await this.engine.ask(query, null, { rows: (told) => rows.push(...told.added) });
    return rows;
  }

  /** The answer as of an instant, in place of the present one. */
  async past(instant) {
    if (this.mode !== "past") this.stop();
    this.mode = "past";
    const { number, query } = this;
    const shown = `${instant.toISOString().slice(0, 19)}Z`;
    const found = new Answer();
    const isMine = () => number === this.number && query === this.query;
    try {
      await this.engine.ask(query, instant, { rows: (told) => found.append(tabled(told)), work: (told) => (this.work = told) });
      if (!isMine()) return;
      const added = found.live.map((row) => row.cells);
      const places = /\bORDER\s+BY\b/i.test(query) ? added.map((_, place) => place) : undefined;
      this.answer.begin({ vars: found.vars, added, valid: added.map(() => [null, null]), places });
      this.answer.late([]);
      this.least = null;
      this.say("some", `as of ${shown}`);
    } catch (error) {
      if (!isMine()) return;
      this.say("bad", error.status ? `nobody tells of ${shown}: ${error.message.trim().slice(0, 300)}` : `no answer: ${error.message}`);
    }
    this.changed();
  }

  /** Registers a query over streams at the server, and follows it. */
  async register() {
    this.mode = "asking";
    this.say("idle", "registering…");
    this.changed();
    const number = this.number;
    try {
      const told = await this.streams.register(this.query);
      if (number === this.number) this.followHosted(told);
    } catch (error) {
      if (number !== this.number) return;
      this.stop();
      this.problem = error.message;
      this.say("bad", error.status === 401 || error.status === 403 ? "the server wants its token" : "not registered");
      this.changed();
    }
  }

  /** Follows a query that the server has. */
  followHosted(told) {
    this.stop();
    this.mode = "hosted";
    this.hosted = told;
    this.query = told.text;
    this.answer = new Answer();
    const emissions = new Emissions(told);
    this.say("idle", "waiting for results…");
    this.ending = follow(this.streams.resultsOf(told.id), {
      headers: this.streams.headers,
      event: (name, emission) => {
        if (name === "error") {
          this.stop();
          this.say("bad", `ended: ${emission.error}`);
        } else {
          this.clock = Date.parse(emission.at) - Date.now();
          this.beat += 1;
          const update = emissions.update(emission);
          const first = !this.answer.vars.length;
          this.note(first ? this.answer.begin(update) : this.answer.update(update), first);
          this.say("live", emission.result ? "as of the last result" : emission.removed ? "what left the result" : "what came last");
        }
        this.changed();
      },
      refused: (status, text) => {
        this.stop();
        this.say("bad", `refused (${status}): ${text.slice(0, 300)}`);
        this.changed();
      },
      lost: (seconds, why) => {
        this.say("late", `${why}; asking again in ${seconds} s`);
        this.changed();
      },
    });
    this.changed();
  }
}
