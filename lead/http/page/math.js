// Formulas in Markdown between \( \), \[ \], $ $ or $$ $$, as models write them; Temml converts them to MathML.

/* global temml */
import { make } from "./dom.js";

const MAX_LENGTH = 2000; // of a formula
const MARKS = [
  { open: "\\(", close: "\\)", isDisplay: false },
  { open: "\\[", close: "\\]", isDisplay: true },
  { open: "$$", close: "$$", isDisplay: true },
  { open: "$", close: "$", isDisplay: false },
];
/** A formula between single dollars. As in Pandoc, dollars with a space just inside or a digit after them are money. */
const ONE_LINE = /^\$(?=[^\s$])((?:\\[^]|[^\\$])*?[^\s\\$]|\\[^])\$(?!\d)/;

/** Teach `parser`, a markdown-it, tokens "math" and "math_block": `content` is TeX, `hidden` is whether it is inline. */
export function addMath(parser) {
  parser.inline.ruler.before("escape", "math", inlineMath);
  const alt = ["paragraph", "reference", "blockquote", "list"];
  parser.block.ruler.before("fence", "math_block", blockMath, { alt });
}

/** An element with the formula; if Temml cannot read it, the element has its TeX. */
export function formula(tex, isDisplay) {
  const element = make(isDisplay ? "div" : "span", { className: "math" });
  if (isDisplay) element.tabIndex = 0; // what scrolls has to be reached by the keyboard
  try {
    temml.render(tex, element, { displayMode: isDisplay, annotate: true, maxExpand: 500, maxSize: [20, 20] });
  } catch {
    element.textContent = tex; // Temml shows what is wrong in TeX, but it also fails itself: at \underbrace_x
  }
  return element;
}

function inlineMath(state, silent) {
  const mark = MARKS.find(({ open }) => state.src.startsWith(open, state.pos));
  const tex = mark && between(state, mark);
  if (!tex?.trim()) return false;
  if (!silent) {
    const token = state.push("math", "", 0);
    token.content = tex.trim();
    token.markup = mark.open;
    token.info = mark.isDisplay ? "display" : "";
  }
  state.pos += mark.open.length + tex.length + mark.close.length;
  return true;
}

/** The text between the marks `open`, at the present position, and `close`; null: they mark no formula. */
function between(state, { open, close }) {
  const start = state.pos + open.length;
  const end = next(state, close, start);
  if (end < 0 || end > state.pos + MAX_LENGTH) return null;
  if (open !== "$") return state.src.slice(start, end);
  return ONE_LINE.exec(state.src.slice(state.pos, state.pos + MAX_LENGTH))?.[1] ?? null;
}

/** The first position of `mark` at `from` or later; < 0: none. Calls with ascending `from` read the text once in all. */
function next(state, mark, from) {
  const { src, env } = state;
  const last = (env.marks ??= {})[mark];
  if (last?.src === src && last.from <= from && (last.at < 0 || last.at >= from)) return last.at;
  const at = src.indexOf(mark, from);
  env.marks[mark] = { src, from, at };
  return at;
}

function blockMath(state, startLine, endLine, silent) {
  if (state.sCount[startLine] - state.blkIndent >= 4) return false;
  const lineAt = (n) => state.src.slice(state.bMarks[n] + state.tShift[n], state.eMarks[n]).trimEnd();
  const mark = MARKS.find(({ open, isDisplay }) => isDisplay && lineAt(startLine).startsWith(open));
  if (!mark) return false;
  const start = state.bMarks[startLine] + state.tShift[startLine] + mark.open.length;
  const end = next(state, mark.close, start);
  if (end < 0 || end > start + MAX_LENGTH) return false;
  let text = lineAt(startLine).slice(mark.open.length);
  let line = startLine;
  while (!text.includes(mark.close)) {
    line += 1;
    if (line === endLine || text.length > MAX_LENGTH) return false;
    text += `\n${lineAt(line)}`;
  }
  if (!text.endsWith(mark.close) || text.indexOf(mark.close) !== text.length - mark.close.length) return false;
  if (silent) return true;
  const token = state.push("math_block", "", 0);
  token.block = true;
  token.content = text.slice(0, -mark.close.length).trim();
  token.map = [startLine, line + 1];
  state.line = line + 1;
  return true;
}
