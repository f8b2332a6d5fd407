// An answer as it is shown: Markdown, in which the characters that were drafted have their source's colour.

import { piecesOf } from "./attribution.js";
import { copyButton } from "./copying.js";
import { make } from "./dom.js";
import { blocks } from "./markdown.js";
import { colourOf, nameOf } from "./sources.js";

const FRAME_MS = 33;
const REST = 4; // times of what the last painting took

/** A text that grows. Of its Markdown only the last block is built again. */
export class GrowingText {
  #text = "";
  #sources = []; // of each character
  #settledAt = 0;
  #nSettled = 0;
  #nPainted = 0;

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
    const paint = (parent, text, places) => this.#paint(parent, text, places);
    if (!this.isMarkdown) {
      this.element.replaceChildren();
      paint(this.element, this.#text, [...this.#sources.keys()]);
      return;
    }
    const found = blocks(this.#text, this.#settledAt, paint);
    while (this.element.children.length > this.#nSettled) this.element.lastChild.remove();
    this.element.append(...found.map(({ element }) => element));
    if (!found.length) return;
    this.#settledAt = found.at(-1).at;
    this.#nSettled = this.element.children.length - 1;
  }

  #paint(parent, text, places) {
    for (let start = 0, end; start < text.length; start = end) {
      const source = this.#sources[places[start]];
      for (end = start + 1; end < text.length && this.#sources[places[end]] === source; ) end += 1;
      const run = text.slice(start, end);
      // The space before a word is coloured within a run only: at its edge it looks like a mistake.
      const said = source === null ? "" : run.trimStart();
      parent.append(run.slice(0, run.length - said.length));
      if (!said) continue;
      this.legend.add(source);
      parent.append(
        make("span", { className: `token ${colourOf(source)}`, title: `drafted by ${nameOf(source)}` }, said),
      );
    }
  }
}

export class AnswerView {
  #said;
  #thinking = null;
  #painting = null;
  #rest = 0;

  /** `answer` is the message; `transcript` scrolls and offers what can be done with it. */
  constructor(answer, transcript) {
    this.answer = answer;
    this.transcript = transcript;
    const said = make("div", { className: "said" });
    this.element = make("article", { className: "answer" }, make("h2", {}, "Model"), said);
    this.#said = new GrowingText(said, transcript.legend, true);
    if (answer.thinking) this.#think().add(piecesOf(answer.thinking, answer.thinkingRuns));
    if (answer.content) this.#said.add(piecesOf(answer.content, answer.runs));
    this.#paint();
  }

  begin() {
    for (const one of [this.element, this.transcript.element]) one.setAttribute("aria-busy", "true");
  }

  /** `pieces` as `Attribution` gives them. */
  append(pieces) {
    this.#said.add(pieces);
    this.#paintSoon();
  }

  appendThinking(pieces) {
    this.#think().add(pieces);
    this.#paintSoon();
  }

  fail(reason) {
    this.element.append(make("p", { className: "failure" }, reason));
  }

  /** It is complete, or was stopped. */
  finish(siblings) {
    clearTimeout(this.#painting);
    this.transcript.grow(() => {
      this.#paint();
      if (this.answer.figures) this.element.append(make("p", { className: "figures" }, this.answer.figures));
      this.element.append(this.transcript.actionsOfAnswer(this.answer, siblings, this.#copy()));
    });
    for (const one of [this.element, this.transcript.element]) one.removeAttribute("aria-busy");
  }

  #copy() {
    return copyButton("Copy answer", () => this.answer.content);
  }

  #think() {
    if (!this.#thinking) {
      const element = make("div", { className: "thinking" });
      this.#said.element.before(element);
      this.#thinking = new GrowingText(element, this.transcript.legend, false);
    }
    return this.#thinking;
  }

  #paint() {
    this.#thinking?.paint();
    this.#said.paint();
  }

  /** Soon, and with rests in between that grow with what painting takes. */
  #paintSoon() {
    this.#painting ??= setTimeout(() => {
      const began = performance.now();
      this.transcript.grow(() => this.#paint());
      this.#rest = REST * (performance.now() - began);
      this.#painting = null;
    }, Math.max(FRAME_MS, this.#rest));
  }
}
