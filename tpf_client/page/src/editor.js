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
  { tag: tags.keyword, color: "var(--main)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--soft)", fontStyle: "italic" },
  { tag: [tags.variableName, tags.special(tags.variableName)], color: "var(--late)" },
]);
const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--panel)", fontSize: "14px" },
  ".cm-content": { fontFamily: "ui-monospace, monospace", caretColor: "var(--ink)", minHeight: "8em" },
  ".cm-scroller": { maxHeight: "40vh", overflow: "auto" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--soft)", border: "0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused": { outline: "3px solid var(--main)", outlineOffset: "-3px" },
  ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--ground)", border: "1px solid var(--edge)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--edge) !important" },
});
const WORDS = (
  "SELECT DISTINCT REDUCED WHERE OPTIONAL UNION FILTER BIND VALUES MINUS GRAPH SERVICE EXISTS GROUP BY HAVING " +
  "ORDER ASC DESC LIMIT OFFSET PREFIX BASE COUNT SUM AVG MIN MAX SAMPLE GROUP_CONCAT STR LANG DATATYPE CONCAT REGEX NOW"
).split(" ");

const NAMED = /^[\w-]*$/;

/** An IRI of the dataset as an option: by a prefix of the text, by a known one, or as it is. */
function option(iri, type, declared) {
  const by = (prefixes) => Object.entries(prefixes).find(([, start]) => iri.startsWith(start) && NAMED.test(iri.slice(start.length)));
  const own = by(declared);
  if (own) return { label: `${own[0]}:${iri.slice(own[1].length)}`, type, detail: type };
  const [name, start] = by(KNOWN) ?? [];
  if (!start || name in declared) return { label: `<${iri}>`, type, detail: type };
  const label = `${name}:${iri.slice(start.length)}`;
  const apply = (view, _, from, to) => {
    const head = `PREFIX ${name}: <${start}>\n`;
    view.dispatch({ changes: [{ from: 0, insert: head }, { from, to, insert: label }], selection: { anchor: head.length + from + label.length } });
  };
  return { label, type, detail: type, apply };
}

/**
 * Completes what the dataset has, words of the language, and what stands in the text already.
 * @param {{predicates: string[], classes: string[]}} words of the dataset
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
  if (!word && !context.explicit) return null;
  const from = word?.from ?? context.pos;
  const declared = declaredIn(text);
  // After `a` stands a class.
  const typed = /(\ba|\brdf:type)\s+$/.test(text.slice(0, from));
  const options = words.predicates.map((iri) => ({ ...option(iri, "property", declared), boost: typed ? 0 : 20 }));
  options.push(...words.classes.map((iri) => ({ ...option(iri, "class", declared), boost: typed ? 20 : 0 })));
  const known = new Set(options.map(({ label }) => label));
  const said = new Set(text.match(/[?$]\w+|[\w-]*:[\w-]+/g) ?? []);
  if (word) said.delete(word.text);
  options.push(...[...said].filter((label) => !known.has(label)).map((label) => ({ label, type: "variable" })));
  options.push(...WORDS.map((label) => ({ label, type: "keyword" })));
  return { from, options, validFor: /^([?$]?[\w:-]*|<[^<>\s]*)$/ };
};

/**
 * An editor.
 * @param {HTMLElement} place where it goes
 * @param {() => void} run what Ctrl-Enter does
 * @param {() => void} changed called when the text changes
 */
export function makeEditor(place, run, changed) {
  const words = { predicates: [], classes: [] };
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
        EditorView.contentAttributes.of({ "aria-label": "SPARQL query; Control-Enter watches, Escape then Tab leaves" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) changed(); }),
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
