// Labels of the things in sight, looked up in the datasets themselves.
const NAMES = [
  "http://www.w3.org/2000/01/rdf-schema#label",
  "http://www.w3.org/2004/02/skos/core#prefLabel",
  "http://schema.org/name",
  "https://schema.org/name",
  "http://purl.org/dc/terms/title",
  "http://xmlns.com/foaf/0.1/name",
];
const PAUSE = 250; // milliseconds in which wishes are gathered
const MOST = 50; // things of one question
const IN_ALL = 500; // things that are looked up over one query
const PLAIN = /^https?:\/\/[^<>"{}|\\^`\s]+$/;

const languages = [...navigator.languages.map((each) => each.split("-")[0]), "en", undefined];
const rank = (term) => {
  const place = languages.indexOf(term["xml:lang"]?.split("-")[0]);
  return place < 0 ? languages.length : place;
};

export class Labels {
  /**
   * @param {(query: string) => Promise<object[]>} ask gives the rows of an answer
   * @param {() => void} changed called when labels have come
   */
  constructor(ask, changed) {
    this.ask = ask;
    this.changed = changed;
    this.known = new Map(); // IRI: its label, or undefined where there is none
    this.names = []; // the properties that give labels here
    this.wishes = new Set();
    this.timer = 0;
    this.left = IN_ALL;
  }

  /** Has the predicates of other datasets from now on, perhaps of a sample: one is asked only where it may occur. */
  over(predicates, sampled) {
    this.names = NAMES.filter((each) => predicates.includes(each)).slice(0, 2);
    if (!this.names.length && sampled) this.names = NAMES.slice(0, 1);
    this.known.clear();
  }

  /** Things are in sight. */
  want(iris) {
    if (!this.names.length) return;
    for (const iri of iris) if (!this.known.has(iri) && PLAIN.test(iri)) this.wishes.add(iri);
    if (this.wishes.size && !this.timer) this.timer = setTimeout(() => this.look(), PAUSE);
  }

  async look() {
    const things = [...this.wishes].slice(0, Math.min(MOST, this.left));
    this.wishes.clear();
    this.left -= things.length;
    for (const each of things) this.known.set(each, undefined);
    if (things.length) {
      const values = `VALUES ?thing { ${things.map((each) => `<${each}>`).join(" ")} }`;
      const parts = this.names.map((name) => `{ ${values} ?thing <${name}> ?label }`);
      try {
        const found = await this.ask(`SELECT ?thing ?label { ${parts.join(" UNION ")} }`);
        found.sort((one, other) => rank(other.label) - rank(one.label));
        for (const { thing, label } of found) if (label.type === "literal") this.known.set(thing.value, label.value);
        if (found.length) this.changed();
      } catch {
        // The IRIs are there.
      }
    }
    this.timer = 0;
  }
}
