// The plan: which patterns are matched, in which order, what was expected and what was done.
const number = (value) => (value === null ? "?" : value.toLocaleString("en"));
const counted = (value, word) => `${number(value)} ${word}${value === 1 ? "" : "s"}`;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** IRIs of a pattern by the query's prefixes. */
function short(pattern, prefixes) {
  return pattern.replace(/<([^<>\s]*)>/g, (whole, iri) => {
    const found = prefixes.find(([, start]) => iri.startsWith(start) && /^[\w.-]*$/.test(iri.slice(start.length)));
    return found ? `${found[0]}:${iri.slice(found[1].length)}` : whole;
  });
}

function said(step) {
  const { expected, done } = step;
  const labelled = expected.labelled ? `, ${number(expected.labelled)} of them labelled` : "";
  const expects = `expected ${expected.matches === 1 ? "1 match" : `${number(expected.matches)} matches`} on ${counted(expected.pages, "page")}${labelled}`;
  const did = [];
  if (done.keys !== null) did.push(`${counted(done.keys, "key")} by ${counted(done.requests, "request")}`);
  if (done.pages !== null) did.push(counted(done.pages, "page"));
  if (done.rows !== null) did.push(`${counted(done.rows, "row")} now`);
  return `${expects}; ${did.join(", ")}`;
}

/**
 * Draws a plan as a tree: datasets, parts, and in each part the steps, one in the other.
 * @param {HTMLElement} place
 * @param {object} plan as the endpoint tells it
 * @param {[string, string][]} prefixes
 */
export function drawPlan(place, plan, prefixes) {
  const tree = element("ul");
  for (const { url, labels } of plan.datasets) tree.append(element("li", `${url}: ${labels}`));
  const parts = new Map();
  for (const step of plan.steps) parts.set(step.part, [...(parts.get(step.part) ?? []), step]);
  let n = 0;
  for (const steps of parts.values()) {
    n += 1;
    let into = tree;
    if (parts.size > 1) {
      const fed = steps[0].fed ? ", for what others found" : "";
      const part = element("li", `part ${n} of ${parts.size}${fed}`);
      tree.append(part);
      into = part.appendChild(element("ul"));
    }
    // What a step gives are the keys of the step around it.
    for (const step of steps.reverse()) {
      const line = element("li");
      line.append(
        element("span", step.how === "scan" ? "read" : "look up", "how"), " ",
        element("code", short(step.pattern, prefixes)), " ",
        element("span", step.change ?? "unknown", `change ${step.change ?? ""}`.trim()),
        element("div", said(step), "soft"),
        element("div", step.why, "soft"),
      );
      into.append(line);
      into = line.appendChild(element("ul"));
    }
    into.remove();
  }
  const seconds = plan.seconds >= 1 ? `${plan.seconds.toFixed(1)} s` : `${Math.round(plan.seconds * 1000)} ms`;
  place.replaceChildren(element("p", `The last evaluation took ${seconds}.`, "soft"), tree);
}
