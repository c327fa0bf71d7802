// The editor of queries: CodeMirror in a shadow tree, whose styles are sheets that scripts make, not
// elements, so that the page's policy needs no exception for them.
import { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { sparql } from "@codemirror/legacy-modes/mode/sparql";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { KNOWN, declaredIn } from "./terms.js";

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--soft)", fontStyle: "italic" },
  { tag: [tags.variableName, tags.special(tags.variableName)], color: "var(--late)" },
]);
const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--panel)", fontSize: "14px" },
  ".cm-content": { fontFamily: "ui-monospace, monospace", caretColor: "var(--ink)", minHeight: "6em" },
  ".cm-scroller": { maxHeight: "40vh", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--soft)", border: "0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "3px solid var(--accent)", outlineOffset: "-3px" },
  ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--ground)", border: "1px solid var(--edge)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--edge) !important" },
});
const WORDS = (
  "SELECT DISTINCT REDUCED WHERE OPTIONAL UNION FILTER BIND VALUES MINUS GRAPH SERVICE EXISTS GROUP BY HAVING " +
  "ORDER ASC DESC LIMIT OFFSET PREFIX BASE COUNT SUM AVG MIN MAX SAMPLE GROUP_CONCAT STR LANG DATATYPE CONCAT REGEX NOW"
).split(" ");

const NAMED = /^[\w-]*$/;
const CHECKED = 500; // milliseconds without a key after which a text is checked

/** An IRI of the dataset as an option: by a prefix of the text, by a known one, or as it is. */
function option([iri, count], type, declared) {
  const by = (prefixes) => Object.entries(prefixes).find(([, start]) => iri.startsWith(start) && NAMED.test(iri.slice(start.length)));
  const detail = count === null ? `${type}, in a sample` : `${count.toLocaleString("en")} ×`;
  const own = by(declared);
  if (own) return { label: `${own[0]}:${iri.slice(own[1].length)}`, type, detail };
  const [name, start] = by(KNOWN) ?? [];
  if (!start || name in declared) return { label: `<${iri}>`, type, detail };
  const label = `${name}:${iri.slice(start.length)}`;
  const apply = (view, _, from, to) => {
    const head = `PREFIX ${name}: <${start}>\n`;
    view.dispatch({ changes: [{ from: 0, insert: head }, { from, to, insert: label }], selection: { anchor: head.length + from + label.length } });
  };
  return { label, type, detail, apply };
}

/** What stands at the end of a text: a subject, predicate, class or object of a pattern, or something else. */
export function placeIn(text) {
  const bare = text.replace(/<[^<>\s]*>|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g, "x").replace(/#.*/g, " ").replace(/\bFILTER\s*\((?:[^()]|\([^()]*\))*\)/gi, ". ");
  if (bare.split("{").length <= bare.split("}").length) return "other";
  const open = bare.split(/[({]/).at(-1);
  if (bare.lastIndexOf("(") > bare.lastIndexOf("{") && !open.includes(")")) return "other";
  const [pattern, before] = [bare.split(/[{}.](?!\w)/).at(-1), bare.split(/[{};.](?!\w)/).at(-1)];
  const words = before.trim().split(/\s+/).filter(Boolean);
  if (/\s$/.test(before) === false && words.length) words.pop();
  const at = words.length + (pattern.includes(";") ? 1 : 0);
  if (at === 0) return "subject";
  if (at === 1) return "predicate";
  return /^(a|rdf:type)$/.test(words[pattern.includes(";") ? 0 : 1] ?? "") ? "class" : "object";
}

/**
 * Completes what the dataset has, words of the language, and what stands in the text already: what fits first.
 * @param {{predicates: [string, number | null][], classes: [string, number | null][]}} words of the dataset, most
 *   frequent first
 */
const completer = (words) => (context) => {
  const text = context.state.doc.toString();
  const before = text.slice(0, context.pos);
  const prefix = /\bPREFIX\s+([\w.-]*)$/i.exec(before);
  if (prefix) {
    const options = Object.entries(KNOWN).map(([name, iri]) => ({ label: `${name}:`, detail: iri, apply: `${name}: <${iri}>\n`, type: "namespace" }));
    return { from: context.pos - prefix[1].length, options, validFor: /^[\w.-]*:?$/ };
  }
  const word = context.matchBefore(/[?$]?[\w:-]+|<[^<>\s]*/);
  const from = word?.from ?? context.pos;
  const place = placeIn(text.slice(0, from));
  if (!word && !context.explicit) return null;
  const declared = declaredIn(text);
  const of = (list, type, boost) => list.map((each, n) => ({ ...option(each, type, declared), boost: boost - n / list.length }));
  const options = [];
  if (place !== "class") options.push(...of(words.predicates, "property", place === "predicate" ? 50 : 0));
  if (place !== "predicate") options.push(...of(words.classes, "class", place === "class" ? 50 : 0));
  const known = new Set(options.map(({ label }) => label));
  const said = new Set(text.match(/[?$]\w+|[\w-]*:[\w-]+/g) ?? []);
  if (word) said.delete(word.text);
  options.push(...[...said].filter((label) => !known.has(label)).map((label) => ({ label, type: "variable", boost: place === "subject" ? 20 : 10 })));
  if (place === "other" || place === "subject") options.push(...WORDS.map((label) => ({ label, type: "keyword" })));
  return { from, options, validFor: /^([?$]?[\w:-]*|<[^<>\s]*)$/ };
};

/**
 * An editor.
 * @param {HTMLElement} place where it goes
 * @param {() => void} run what Ctrl-Enter does
 * @param {(text: string) => void} check called when the text has changed and nobody types
 */
export function makeEditor(place, run, check) {
  const words = { predicates: [], classes: [] };
  let timer = 0;
  const changed = (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => check(text), CHECKED);
  };
  const root = place.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      extensions: [
        keymap.of([{ key: "Mod-Enter", run: () => (run(), true) }, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), lintGutter(),
        autocompletion({ override: [completer(words)] }),
        StreamLanguage.define(sparql), syntaxHighlighting(colours), look, EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": "SPARQL query; Control-Enter runs it, Escape then Tab leaves" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) changed(update.state.doc.toString()); }),
      ],
    }),
  });
  return {
    get text() { return view.state.doc.toString(); },
    set text(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    /** What the dataset has, for completion. */
    set words(told) { Object.assign(words, told); },
    focus() { view.focus(); },
    /** Marks what is wrong at a line and a column, both from 1, in characters; without: nothing is. */
    mark(message, line, column) {
      const found = [];
      if (message && line <= view.state.doc.lines) {
        const { from, to, text } = view.state.doc.line(line);
        const before = [...text].slice(0, column - 1).join("").length;
        const start = Math.min(from + before, to);
        found.push({ from: start, to: Math.min(start + 1, to), severity: "error", message });
      }
      view.dispatch(setDiagnostics(view.state, found));
    },
  };
}
