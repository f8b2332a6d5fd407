// Converts Markdown to descriptions of elements for `patch`: markdown-it finds the elements, and highlight.js the parts
// of code. No text is read as HTML, and no image is loaded.

/* global hljs, markdownit */
import { copyButton } from "./copying.js";
import { make } from "./dom.js";
import { addMath, formula } from "./math.js";

const MAX_DEPTH = 60; // of nested elements: markdown-it leaves out deeper elements
const CHUNK = 1000; // the characters of code, or a few more, that get their colors together
const MAX_CHUNK = 4 * CHUNK; // such a chunk may end inside nested code
const MAX_HIGHLIGHTED = 200_000; // characters of a block of code
const TASK = /^\[([ xX])\] /;

const parser = markdownit({ html: false, linkify: true });
parser.options.maxNesting = MAX_DEPTH;
// Definitions of links would change earlier text. Texts are joined by `add`, after their places have been found.
parser.disable(["reference", "text_join"]);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
addMath(parser);

/**
 * The blocks of `source` from the position `from` on, as {at, node}; only the last two may change when the source grows.
 * `paint(text, places)` describes text whose characters are at the positions `places` of the source (null: not known).
 * `known`, a Map, keeps the finished parts of blocks of code between calls.
 */
export function blocks(source, from, paint, known) {
  const text = source.slice(from);
  const lineStarts = [from, ...[...text.matchAll(/\r\n|\r|\n/g)].map((end) => from + end.index + end[0].length)];
  const tokens = parser.parse(text, {});
  if (tokens.some(({ level }) => level >= MAX_DEPTH - 1)) return asWritten(text, from, paint);
  return [...new Builder(source, lineStarts, paint, known).build(tokens)];
}

function asWritten(text, from, paint) {
  return [...text.matchAll(/[^\n]+(?:\n[^\n]+)*/g)].map(({ 0: said, index }) => {
    const at = from + index;
    return { at, node: { tag: "p", children: paint(said, Int32Array.from({ length: said.length }, (_, i) => at + i)) } };
  });
}

class Builder {
  #cursor = 0; // a position in the source; elements before it are built

  constructor(source, lineStarts, paint, known) {
    this.known = known;
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

  /** Add the element that begins with `token` to `parent`; returns the node for its children. */
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
    const first = token.map[0] + (token.type === "fence" ? 1 : 0);
    const children = [];
    for (let at = 0, line = first; at < said.length; ) {
      this.#cursor = this.#lineStart(line);
      const chunk = this.#chunk(said, at, language, token);
      children.push(chunk.node);
      at += chunk.length;
      line += chunk.nLines;
    }
    const head = { key: `code ${language}`, build: () => headOf(language) };
    const code = { tag: "code", children };
    const body = { tag: "pre", of: { tabIndex: 0 }, children: [code] }; // what scrolls has to be reached by the keyboard
    return { tag: "div", of: { className: "code" }, children: [head, body] };
  }

  /** The next lines of `said`, a block of code, from the position `at` on, as {node, length, nLines}. */
  #chunk(said, at, language, token) {
    const start = this.#cursor;
    const known = this.known.get(start);
    if (known) return known;
    const { text, parts, isWhole } = colored(said, at, language);
    const places = this.#placesOf(text, token);
    let painted = 0;
    const put = (part) => this.paint(part, places.subarray(painted, (painted += part.length)));
    const walk = (part) => (typeof part === "string" ? put(part) : scoped(part, part.children.flatMap(walk)));
    const node = { tag: "span", of: { className: "lines" }, children: parts.flatMap(walk), isSettled: isWhole };
    const chunk = { node, length: text.length, nLines: text.split("\n").length - 1 };
    if (isWhole) this.known.set(start, chunk);
    return chunk;
  }

  #inline(token) {
    const places = this.#placesOf(token.content, token);
    const flat = token.content.replaceAll("\n", " ");
    let at = 0;
    /** Paint the text `said`, which the source writes as `written`. */
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

  /** The position in the source of each character of a token's `content`; its lines may be indented or quoted there. */
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

/** Add a child; a text is appended to a text before it. */
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

/** Replace `[ ]` or `[x]` at the beginning of a paragraph by a checkbox. */
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

/** The properties of a link: only web pages are linked, and they do not learn the address of this page. */
function linkTo(address) {
  return /^https?:/i.test(address) ? { href: address, target: "_blank", rel: "noopener noreferrer" } : {};
}

const described = (tex, isDisplay) => ({ key: `${isDisplay} ${tex}`, build: () => formula(tex, isDisplay) });

function headOf(language) {
  const said = (copy) => copy.closest(".code").querySelector("code").textContent;
  return make("div", { className: "row" }, make("span", {}, language), copyButton("Copy code", said));
}

// --- colors of code

/**
 * Lines of `code` from the position `at` on, as {text, parts, isWhole}; `parts` are texts and {scope, children}. If
 * `isWhole`, later code does not change them: the last line is complete, and usually outside nested code.
 */
function colored(code, at, language) {
  const isKnown = hljs.getLanguage(language) && at < MAX_HIGHLIGHTED;
  for (let size = CHUNK; ; size *= 2) {
    const end = code.indexOf("\n", at + size) + 1;
    const text = code.slice(at, end || undefined);
    if (!isKnown || text.length > 2 * MAX_CHUNK) return { text, parts: [text], isWhole: end > 0 };
    const { _emitter, _top } = hljs.highlight(text, { language, ignoreIllegals: true });
    const isWhole = end > 0 && (!_top.parent || size >= MAX_CHUNK);
    if (isWhole || !end) return { text, parts: _emitter.rootNode.children, isWhole };
  }
}

const scopes = new Map(); // by class: the properties, an object that all elements share

/** The elements of a part of code; a part in another language has no scope. */
function scoped({ scope }, children) {
  if (!scope) return children;
  const className = `code-${scope.split(".")[0]}`;
  if (!scopes.has(className)) scopes.set(className, { className });
  return [{ tag: "span", of: scopes.get(className), children }];
}

// The first use takes many times as long as later uses, so it is made before an answer arrives.
globalThis.requestIdleCallback?.(() => hljs.highlight("x = 1", { language: "python" }));
