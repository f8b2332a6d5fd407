// A growing text, in which drafted characters have the color of their source.

import { blocks } from "./markup.js";
import { patch } from "./patch.js";
import { colorOf, nameOf } from "./sources.js";

const N_OPEN = 2; // blocks at the end that may yet change

/** A growing text. If it is Markdown, only its last blocks are parsed again. */
export class GrowingText {
  #text = "";
  #sources = []; // of each character
  #settledAt = 0;
  #nSettled = 0;
  #nPainted = 0;
  #known = new Map(); // parts of the last blocks that will not change
  #properties = new Map(); // by source: of its elements, which share one object

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
      // Space at the beginning of a run gets no color: it would look like a mistake.
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
