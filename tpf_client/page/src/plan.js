// The plan: what the query is made of, which patterns are matched in which order, what was expected and done.
const number = (value) => (value === null ? "?" : value.toLocaleString("en"));
const counted = (value, word) => `${number(value)} ${word}${value === 1 ? "" : "s"}`;
const lasted = (seconds) => (seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds * 1000)} ms`);

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** IRIs of a text by the query's prefixes. */
export function short(pattern, prefixes) {
  return pattern.replace(/<([^<>\s]*)>/g, (whole, iri) => {
    const found = prefixes.find(([, start]) => iri.startsWith(start) && /^[\w.-]*$/.test(iri.slice(start.length)));
    return found ? `${found[0]}:${iri.slice(found[1].length)}` : whole;
  });
}

/**
 * Lines as lists inside each other.
 * @param {{depth: number, item: HTMLElement}[]} lines outermost first
 */
export function nested(lines) {
  const root = element("ul");
  const open = [{ depth: -1, list: root, item: null }];
  for (const { depth, item } of lines) {
    while (open.at(-1).depth >= depth) open.pop();
    const above = open.at(-1);
    above.list ??= above.item.appendChild(element("ul"));
    above.list.append(item);
    open.push({ depth, list: null, item });
  }
  return root;
}

function said(step, asked) {
  const { expected, done } = step;
  const labelled = expected.labelled ? `, ${number(expected.labelled)} of them labelled` : "";
  const expects = `expected ${expected.matches === 1 ? "1 match" : `${number(expected.matches)} matches`} on ${counted(expected.pages, "page")}${labelled}`;
  if (asked) return expects;
  const did = [];
  if (done.keys !== null) did.push(`${counted(done.keys, "key")} by ${counted(done.requests, "request")}`);
  if (done.pages !== null) did.push(counted(done.pages, "page"));
  if (done.rows !== null) did.push(`${counted(done.rows, "row")} now`);
  did.push(done.seconds === null ? "nothing new at the last look" : `complete after ${lasted(done.seconds)}`);
  return `${expects}; ${did.join(", ")}`;
}

function drawn(step, prefixes, asked) {
  const line = element("li");
  line.append(
    element("span", step.how === "scan" ? "read" : "look up", "how"), " ",
    element("code", short(step.pattern, prefixes)), " ",
    element("span", step.change ?? "unknown", `change ${step.change ?? ""}`.trim()),
    element("div", said(step, asked), "soft"),
    element("div", step.why, "soft"),
  );
  return line;
}

/**
 * Draws a plan: datasets, and the tree that the query is, with the steps of each part in their places.
 * @param {HTMLElement} place
 * @param {object} plan as the endpoint tells it
 * @param {[string, string][]} prefixes
 */
export function drawPlan(place, plan, prefixes) {
  const datasets = element("ul");
  for (const { url, labels } of plan.datasets) datasets.append(element("li", `${url}: ${labels}`));
  const parts = new Map();
  for (const step of plan.steps) parts.set(step.part, [...(parts.get(step.part) ?? []), step]);
  const lines = [];
  for (const { depth, operator, about, parts: numbers } of plan.tree) {
    const steps = numbers.map((n) => parts.get(n) ?? []);
    if (operator !== "match" || steps.flat().length === 0) {
      const item = element("li");
      item.append(element("span", operator, "operator"), about ? ` ${short(about, prefixes)}` : "");
      lines.push({ depth, item });
    }
    for (const part of steps) {
      const below = operator === "match" ? depth : depth + 1;
      // What a step gives are the keys of the step around it.
      part.reverse().forEach((step, n) => lines.push({ depth: below + n, item: drawn(step, prefixes, plan.seconds === null) }));
    }
  }
  const when = plan.seconds === null ? "As expected before anything was read; what is watched shows what was done, too." : `The last evaluation took ${lasted(plan.seconds)}.`;
  place.replaceChildren(element("p", when, "soft"), datasets, nested(lines));
}
