// Markdown as descriptions of elements for `patch`: markdown-it says what stands where, highlight.js what code is made
// of. Nothing is ever read as HTML, and no picture is loaded.

/* global hljs, markdownit */
import { copyButton } from "./copying.js";
import { make } from "./dom.js";
import { addMath, formula } from "./math.js";

const MAX_DEPTH = 60; // of elements in one another: markdown-it leaves out what is deeper
const MAX_HIGHLIGHTED = 40_000; // characters of a block of code
const MAX_PLAIN = 1000; // characters at the end of one that grows
const N_REMEMBERED = 8; // blocks of code whose colors are known
const TASK = /^\[([ xX])\] /;

const parser = markdownit({ html: false, linkify: true });
parser.options.maxNesting = MAX_DEPTH;
// Definitions of links would change what stands before them; text is joined here, as its places are needed.
parser.disable(["reference", "text_join"]);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
addMath(parser);

/**
 * The blocks of `source` from the place `from` on, {at, node}; only the last two of them may yet change.
 * `paint(text, places)` describes text whose characters stand at `places` in the source (null: not known).
 */
export function blocks(source, from, paint) {
  const text = source.slice(from);
  const lineStarts = [from, ...[...text.matchAll(/\r\n|\r|\n/g)].map((end) => from + end.index + end[0].length)];
  const tokens = parser.parse(text, {});
  if (tokens.some(({ level }) => level >= MAX_DEPTH - 1)) return asWritten(text, from, paint);
  return [...new Builder(source, lineStarts, paint).build(tokens)];
}

function asWritten(text, from, paint) {
  return [...text.matchAll(/[^\n]+(?:\n[^\n]+)*/g)].map(({ 0: said, index }) => {
    const at = from + index;
    return { at, node: { tag: "p", children: paint(said, Int32Array.from({ length: said.length }, (_, i) => at + i)) } };
  });
}

class Builder {
  #cursor = 0; // in the source: all before it is built

  constructor(source, lineStarts, paint) {
    this.source = source;
    this.lineStarts = lineStarts;
    this.paint = paint;
  }

  *build(tokens) {
    const open = [{ children: [] }];
    let at = 0; // where the block begins
    for (const token of tokens) {
      if (token.level === 0 && token.map) at = this.#lineStart(token.map[0]);
      if (token.map) this.#cursor = Math.max(this.#cursor, this.#lineStart(token.map[0]));
      const parent = open.at(-1);
      if (token.nesting < 0) open.pop();
      else if (token.nesting > 0) open.push(this.#opened(token, parent));
      else parent.children.push(...this.#leaf(token));
      if (open.length === 1) yield { at, node: open[0].children.pop() };
    }
  }

  #lineStart(n) {
    return this.lineStarts[n] ?? this.source.length;
  }

  /** The element that begins with `token`, in `parent`. */
  #opened(token, parent) {
    if (token.hidden) return parent; // a paragraph of a list whose items are close to each other
    const node = elementOf(token);
    if (token.type !== "table_open") {
      parent.children.push(node);
      return node;
    }
    parent.children.push({ tag: "div", of: { className: "table", tabIndex: 0 }, children: [node] });
    return node;
  }

  #leaf(token) {
    switch (token.type) {
      case "inline":
        return this.#inline(token);
      case "fence":
      case "code_block":
        return [this.#code(token)];
      case "math_block":
        return [described(token.content, true)];
      default:
        return [{ tag: "hr" }];
    }
  }

  #code(token) {
    const language = token.info.trim().split(/\s/)[0];
    const said = token.content.replace(/\n$/, "");
    if (token.type === "fence") this.#cursor = this.#lineStart(token.map[0] + 1);
    const places = this.#placesOf(said, token);
    let at = 0;
    const put = (text) => this.paint(text, places.subarray(at, (at += text.length)));
    const walk = (part) => (typeof part === "string" ? put(part) : scoped(part, part.children.flatMap(walk)));
    const lastLine = this.source.slice(this.#lineStart(token.map[1] - 1), this.#lineStart(token.map[1]));
    const isOpen = !lastLine.includes(token.markup || "\n");
    const children = partsOf(said, language, isOpen).flatMap(walk);
    const head = { key: `code ${language}`, build: () => headOf(language) };
    const code = { tag: "code", children };
    const body = { tag: "pre", of: { tabIndex: 0 }, children: [code] }; // what scrolls has to be reached by the keyboard
    return { tag: "div", of: { className: "code" }, children: [head, body] };
  }

  #inline(token) {
    const places = this.#placesOf(token.content, token);
    const flat = token.content.replaceAll("\n", " ");
    let at = 0;
    /** The text `said`, which is written as `written`. */
    const put = (said, written = said) => {
      const found = flat.indexOf(written, at);
      if (found < 0) return this.paint(said, null);
      at = found + written.length;
      if (said === written) return this.paint(said, places.subarray(found, at));
      return this.paint(said, new Int32Array(said.length).fill(places[at - 1]));
    };
    const open = [{ children: [] }];
    for (const child of withTask(token.children)) {
      const parent = open.at(-1);
      if (child.nesting > 0) {
        const node = elementOf(child);
        parent.children.push(node);
        open.push(node);
      } else if (child.nesting < 0) open.pop();
      else for (const one of inlineLeaf(child, put)) add(parent.children, one);
    }
    return open[0].children;
  }

  /** Where in the source each character of `content` stands, the text of a token; lines there may be indented, or quoted. */
  #placesOf(content, { map }) {
    const places = new Int32Array(content.length);
    const until = map ? this.#lineStart(map[1]) : this.source.length;
    for (let start = 0, end; start <= content.length; start = end + 1) {
      end = content.indexOf("\n", start);
      if (end < 0) end = content.length;
      else places[end] = this.#cursor;
      if (start < end) this.#placeLine(content.slice(start, end), places.subarray(start, end), until);
    }
    return places;
  }

  #placeLine(line, places, until) {
    const nearby = this.source.slice(this.#cursor, Math.min(until, this.#cursor + 2 * line.length + 1000));
    const found = nearby.indexOf(line);
    let end = Math.max(found, 0);
    for (let k = 0; k < line.length; k += 1) {
      const next = found < 0 ? nearby.indexOf(line[k], end) : end; // < 0: signs are written in another way
      if (next >= 0) end = next + 1;
      places[k] = this.#cursor + end - 1;
    }
    this.#cursor += end;
  }
}

/** Texts beside each other become one. */
function add(children, one) {
  if (typeof one === "string" && typeof children.at(-1) === "string") children.push(children.pop() + one);
  else children.push(one);
}

function inlineLeaf(token, put) {
  switch (token.type) {
    case "text":
      return put(token.content);
    case "text_special": // an escaped sign, or an entity
      return put(token.content, token.markup);
    case "code_inline":
      return [{ tag: "code", children: put(token.content) }];
    case "math":
      return [described(token.content, token.info === "display")];
    case "image":
      return [{ tag: "a", of: linkTo(token.attrGet("src")), children: put(token.content || token.attrGet("src")) }];
    case "task":
      return [box(token.info !== " "), " "];
    default:
      return ["\n"]; // a line break
  }
}

/** A paragraph that begins with a box becomes one with a checkbox. */
function withTask(tokens) {
  const [first, ...others] = tokens;
  const mark = first?.type === "text" && TASK.exec(first.content);
  if (!mark) return tokens;
  const rest = { ...first, content: first.content.slice(mark[0].length) };
  return [{ type: "task", nesting: 0, info: mark[1] }, rest, ...others];
}

const box = (isDone) => ({
  tag: "input",
  of: { type: "checkbox", disabled: true, checked: isDone, ariaLabel: isDone ? "done" : "to do" },
});

function elementOf(token) {
  const { tag, type } = token;
  if (type === "heading_open") return { tag: "h3", of: { className: `level-${tag[1]}` }, children: [] };
  if (type === "link_open") return { tag, of: linkTo(token.attrGet("href")), children: [] };
  if (type === "ordered_list_open") return { tag, of: { start: token.attrGet("start") ?? 1 }, children: [] };
  const side = /text-align:(\w+)/.exec(token.attrGet("style") ?? "")?.[1];
  return { tag, of: side ? { className: side } : {}, children: [] };
}

/** Only to web pages, and they are not told where from. */
function linkTo(address) {
  return /^https?:/i.test(address) ? { href: address, target: "_blank", rel: "noopener noreferrer" } : {};
}

const described = (tex, isDisplay) => ({ key: `${isDisplay} ${tex}`, build: () => formula(tex, isDisplay) });

function headOf(language) {
  const said = (copy) => copy.closest(".code").querySelector("code").textContent;
  return make("div", { className: "row" }, make("span", {}, language), copyButton("Copy code", said));
}

// --- colors of code

const remembered = []; // {code, language, parts}, the newest first

/** `code` as texts and {scope, children}; the end of one that grows may have no colors yet. */
function partsOf(code, language, isOpen) {
  if (!hljs.getLanguage(language) || code.length > MAX_HIGHLIGHTED) return [code];
  const isKnown = (one) =>
    one.language === language &&
    (one.code === code || (isOpen && code.length < one.code.length + MAX_PLAIN && code.startsWith(one.code)));
  const known = remembered.find(isKnown);
  if (known) return known.code === code ? known.parts : [...known.parts, code.slice(known.code.length)];
  const { children: parts } = hljs.highlight(code, { language, ignoreIllegals: true })._emitter.rootNode;
  remembered.unshift({ code, language, parts });
  remembered.splice(N_REMEMBERED);
  return parts;
}

const scopes = new Map(); // their properties, which are then the same object for all

/** The elements of a part of code; one in another language has no scope. */
function scoped({ scope }, children) {
  if (!scope) return children;
  const className = `code-${scope.split(".")[0]}`;
  if (!scopes.has(className)) scopes.set(className, { className });
  return [{ tag: "span", of: scopes.get(className), children }];
}
