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

/** Words of the language, and prefixed names and variables that stand in the text already. */
function complete(context) {
  const word = context.matchBefore(/[?$]?[\w:-]+/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const said = new Set(context.state.doc.toString().match(/[?$]\w+|\b[\w-]+:[\w-]+/g) ?? []);
  said.delete(word.text);
  const options = [...said].map((label) => ({ label, type: "variable" }));
  options.push(...WORDS.map((label) => ({ label, type: "keyword" })));
  return { from: word.from, options, validFor: /^[?$]?[\w:-]*$/ };
}

/**
 * An editor.
 * @param {HTMLElement} place where it goes
 * @param {() => void} run what Ctrl-Enter does
 * @param {() => void} changed called when the text changes
 */
export function makeEditor(place, run, changed) {
  const root = place.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      extensions: [
        keymap.of([{ key: "Mod-Enter", run: () => (run(), true) }, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), lintGutter(),
        autocompletion({ override: [complete] }),
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
