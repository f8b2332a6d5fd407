// A text that grows, in which the characters that were drafted have their source's color.

import { blocks } from "./markup.js";
import { patch } from "./patch.js";
import { colorOf, nameOf } from "./sources.js";

const N_OPEN = 2; // blocks at the end that may yet change

/** Of its Markdown only the last blocks are read again. */
export class GrowingText {
  #text = "";
  #sources = []; // of each character
  #settledAt = 0;
  #nSettled = 0;
  #nPainted = 0;
  #known = new Map(); // parts of the last blocks that stay as they are
  #properties = new Map(); // of what a source drafted: the same object for all

  constructor(element, legend, isMarkdown) {
    this.element = element;
    this.legend = legend;
    this.isMarkdown = isMarkdown;
  }

  add(pieces) {
    for (const { text, source } of pieces) {
      this.#text += text;
      for (let i = 0; i < text.length; i += 1) this.#sources.push(source);
    }
  }

  paint() {
    if (this.#nPainted === this.#text.length) return;
    this.#nPainted = this.#text.length;
    const paint = (text, places) => (places ? [...this.#runs(text, places)] : [text]);
    if (!this.isMarkdown) {
      patch(this.element, paint(this.#text, Int32Array.from(this.#sources.keys())));
      return;
    }
    const found = blocks(this.#text, this.#settledAt, paint, this.#known);
    patch(this.element, found.map(({ node }) => node), this.#nSettled);
    const n = Math.max(0, found.length - N_OPEN);
    this.#nSettled += n;
    if (!n) return;
    this.#settledAt = found[n].at;
    for (const at of this.#known.keys()) if (at < this.#settledAt) this.#known.delete(at);
  }

  *#runs(text, places) {
    for (let start = 0, end; start < text.length; start = end) {
      const source = this.#sources[places[start]];
      for (end = start + 1; end < text.length && this.#sources[places[end]] === source; ) end += 1;
      const run = text.slice(start, end);
      // The space before a word is colored within a run only: at its edge it looks like a mistake.
      const said = source ? run.trimStart() : "";
      if (said.length < run.length) yield run.slice(0, run.length - said.length);
      if (!said) continue;
      yield { tag: "span", of: this.#propertiesOf(source), children: [said] };
    }
  }

  #propertiesOf(source) {
    if (!this.#properties.has(source)) {
      this.legend.add(source);
      this.#properties.set(source, { className: `token ${colorOf(source)}`, title: `drafted by ${nameOf(source)}` });
    }
    return this.#properties.get(source);
  }
}
