// Markdown as elements, of the parts that models write. Nothing is ever read as HTML, no picture is loaded.
// Each character knows its place in the source, so that `paint(parent, text, places)` can tell who drafted it.

import { copyButton } from "./copying.js";
import { make } from "./dom.js";

const MAX_DEPTH = 8; // of quotes and lists in one another; deeper ones stay text
const MAX_SPAN = 1000; // characters between two marks of emphasis: no text takes quadratic time
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|(\d{1,9})[.)])(?: +|$)/;
const RULE = /^([-*_])\1{2,}$/;
const TABLE_RULE = /^\|?:?-+:?(\|:?-+:?)*\|?$/;
const span = `(?=\\S)([^]{1,${MAX_SPAN}}?)(?<=\\S)`;
const INLINE = new RegExp(
  [
    "\\\\([!-/:-@[-`{-~])", // 1: an escaped sign
    `(?<!\`)(\`+)(?!\`)([^]{1,${MAX_SPAN}}?)(?<!\`)\\2(?!\`)`, // 2, 3: code
    `\\*\\*${span}\\*\\*(?!\\*)`, // 4: strong
    `(?<!\\w)__${span}__(?!\\w)`, // 5: strong
    `\\*(?!\\*)${span}\\*(?!\\*)`, // 6: emphasis
    `(?<!\\w)_(?!_)${span}_(?!\\w)`, // 7: emphasis
    `~~${span}~~`, // 8: struck out
    `!?\\[([^\\]\\n]{1,${MAX_SPAN}})\\]\\(<?([^\\s()<>]{1,${MAX_SPAN}})>?(?: "[^"\\n]{0,${MAX_SPAN}}")?\\)`, // 9, 10: link
    `<?(https?://[^\\s<>"\`*]{1,${MAX_SPAN}}[^\\s<>"\`*.,;:!?)\\]])>?`, // 11: an address
  ].join("|"),
  "gd",
);

/** The blocks of `source` from the place `from` on, {at, element}; only the last one may yet change. */
export function blocks(source, from, paint) {
  const lines = [];
  let at = from;
  for (const text of source.slice(from).split("\n")) {
    lines.push({ text, at });
    at += text.length + 1;
  }
  return [...parse(lines, paint, 0)];
}

function* parse(lines, paint, depth) {
  for (let i = 0; i < lines.length; ) {
    if (isBlank(lines[i])) {
      i += 1;
      continue;
    }
    const [element, n] = block(lines, i, paint, depth);
    yield { at: lines[i].at, element };
    i += n;
  }
}

/** The element that begins at line `i`, and its number of lines. */
function block(lines, i, paint, depth) {
  const { text } = lines[i];
  const fence = FENCE.exec(text);
  if (fence) return code(lines, i, fence, paint);
  const heading = HEADING.exec(text);
  if (heading) return [inline(make("h3", { className: `level-${heading[1].length}` }), [cut(lines[i], heading[0].length)], paint), 1];
  if (isRule(text)) return [make("hr"), 1];
  if (isTable(lines, i)) return table(lines, i, paint);
  if (depth < MAX_DEPTH && QUOTE.test(text)) return quote(lines, i, paint, depth);
  if (depth < MAX_DEPTH && ITEM.test(text)) return list(lines, i, paint, depth);
  let end = i + 1;
  while (end < lines.length && !isBlank(lines[end]) && !begins(lines, end)) end += 1;
  return [inline(make("p"), lines.slice(i, end), paint), end - i];
}

const isBlank = ({ text }) => text.trim() === "";
const isRule = (text) => RULE.test(text.replace(/\s/g, ""));
const isTable = (lines, i) =>
  lines[i].text.includes("|") &&
  i + 1 < lines.length &&
  lines[i + 1].text.includes("-") &&
  lines[i + 1].text.includes("|") &&
  TABLE_RULE.test(lines[i + 1].text.replace(/\s/g, ""));
const begins = (lines, i) =>
  [FENCE, HEADING, QUOTE, ITEM].some((kind) => kind.test(lines[i].text)) || isRule(lines[i].text) || isTable(lines, i);

/** A line without its first `n` characters. */
const cut = ({ text, at }, n) => ({ text: text.slice(n), at: at + Math.min(n, text.length) });

const indentOf = ({ text }) => text.length - text.trimStart().length;

function code(lines, i, [, fence, language], paint) {
  const indent = indentOf(lines[i]);
  const isEnd = ({ text }) => {
    const mark = text.trim();
    return mark.length >= fence.length && mark === fence[0].repeat(mark.length);
  };
  let end = i + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  const inside = lines.slice(i + 1, end).map((line) => cut(line, Math.min(indent, indentOf(line))));
  const text = make("code");
  const [said, places] = joined(inside);
  paint(text, said, places);
  const head = make("div", { className: "row" }, make("span", {}, language.trim()), copyButton("Copy code", () => said));
  // What scrolls has to be reached by the keyboard.
  return [make("div", { className: "code" }, head, make("pre", { tabIndex: 0 }, text)), end - i + 1];
}

function quote(lines, i, paint, depth) {
  let end = i;
  const inside = [];
  for (let mark; end < lines.length && (mark = QUOTE.exec(lines[end].text)); end += 1) {
    inside.push(cut(lines[end], mark[0].length));
  }
  return [make("blockquote", {}, ...elements(inside, paint, depth + 1)), end - i];
}

const elements = (lines, paint, depth) => [...parse(lines, paint, depth)].map(({ element }) => element);

function list(lines, i, paint, depth) {
  const [, , mark, number] = ITEM.exec(lines[i].text);
  const isOrdered = number !== undefined;
  const items = make(isOrdered ? "ol" : "ul", isOrdered ? { start: Number(number) } : {});
  const indent = indentOf(lines[i]);
  let at = i;
  for (;;) {
    const n = itemLength(lines, at, indent);
    const width = ITEM.exec(lines[at].text)[0].length;
    const inside = lines.slice(at, at + n).map((line, k) => cut(line, k ? Math.min(width, indentOf(line)) : width));
    items.append(make("li", {}, ...elements(inside, paint, depth + 1)));
    at += n;
    const next = ITEM.exec(lines[at]?.text ?? "");
    const isNext = next && Math.abs(next[1].length - indent) < 2 && next[2].at(-1) === mark.at(-1) && !isRule(lines[at].text);
    if (!isNext) return [items, at - i];
  }
}

/** The lines of the item at `at`: what is indented, and what goes on with its paragraph. */
function itemLength(lines, at, indent) {
  let end = at + 1;
  for (let next = end; next < lines.length; next += 1) {
    if (isBlank(lines[next])) continue;
    const isIndented = indentOf(lines[next]) >= indent + 2;
    const goesOn = !isBlank(lines[next - 1]) && !begins(lines, next);
    if (!isIndented && !goesOn) break;
    end = next + 1;
  }
  // Blank lines before the next item are of this one.
  let next = end;
  while (next < lines.length && isBlank(lines[next])) next += 1;
  return next < lines.length && ITEM.test(lines[next].text) ? next - at : end - at;
}

function table(lines, i, paint) {
  let end = i + 2;
  while (end < lines.length && lines[end].text.includes("|")) end += 1;
  const width = cells(lines[i]).length;
  const row = (line, tag) =>
    make("tr", {}, ...cells(line).slice(0, width).map((cell) => inline(make(tag), [cell], paint)));
  const head = make("thead", {}, row(lines[i], "th"));
  const body = make("tbody", {}, ...lines.slice(i + 2, end).map((line) => row(line, "td")));
  return [make("div", { className: "table", tabIndex: 0 }, make("table", {}, head, body)), end - i];
}

function cells(line) {
  const found = [];
  let at = 0;
  for (const part of line.text.split(/(?<!\\)\|/)) {
    found.push(cut({ text: line.text.slice(0, at + part.length), at: line.at }, at + indentOf({ text: part })));
    at += part.length + 1;
  }
  if (line.text.trimStart().startsWith("|")) found.shift();
  if (found.length > 1 && line.text.trimEnd().endsWith("|")) found.pop();
  return found.map(({ text, at: place }) => ({ text: text.trimEnd(), at: place }));
}

/** The lines as one text, and the place of each of its characters. */
function joined(lines) {
  const places = [];
  lines.forEach(({ text, at }, i) => {
    if (i) places.push(places.length ? places.at(-1) + 1 : at);
    for (let k = 0; k < text.length; k += 1) places.push(at + k);
  });
  return [lines.map(({ text }) => text).join("\n"), places];
}

function inline(parent, lines, paint) {
  fill(parent, ...joined(lines), paint, 0);
  return parent;
}

function fill(parent, text, places, paint, depth) {
  const put = (into, start, end) => start < end && paint(into, text.slice(start, end), places.slice(start, end));
  const within = (into, start, end) => {
    if (depth < MAX_DEPTH) fill(into, text.slice(start, end), places.slice(start, end), paint, depth + 1);
    else put(into, start, end);
    return into;
  };
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    put(parent, at, match.index);
    at = match.index + match[0].length;
    const group = match.indices.findLastIndex((range, i) => i > 0 && range);
    const [start, end] = match.indices[group];
    if (group === 1) put(parent, start, end);
    else if (group === 3) put(append(parent, "code"), start, end);
    else if (group === 10) within(append(parent, "a", link(match[10])), ...match.indices[9]);
    else if (group === 11) put(append(parent, "a", link(match[11])), start, end);
    else within(append(parent, ["strong", "strong", "em", "em", "s"][group - 4]), start, end);
  }
  put(parent, at, text.length);
}

function append(parent, tag, properties) {
  const child = make(tag, properties);
  parent.append(child);
  return child;
}

/** Only to web pages, and they are not told where from. */
function link(address) {
  if (!/^https?:/i.test(address)) return {};
  return { href: address, target: "_blank", rel: "noopener noreferrer" };
}
