// The view of an answer: the model's name, its reasoning, the text, and the speed.

import { piecesOf } from "./attribution.js";
import { copyButton } from "./copying.js";
import { make, tell } from "./dom.js";
import { GrowingText } from "./growing_text.js";
import { seconds } from "./figures.js";

const FRAME_MS = 33;
const REST = 4; // a pause between paintings, in multiples of the time of the last one

export class AnswerView {
  #said;
  #thinking = null;
  #painting = null;
  #rest = 0;
  #running = make("p", { className: "figures-so-far" });
  /** The answer's figures until it ends. */
  figures = [];

  /** `answer` is the message; `transcript` scrolls, and makes the buttons below the answer. */
  constructor(answer, transcript) {
    this.answer = answer;
    this.transcript = transcript;
    const said = make("div", { className: "said" });
    this.title = make("h2");
    this.summary = make("summary");
    this.foot = make("div", { className: "foot" });
    this.element = make("article", { className: "answer" }, this.title, said, this.foot);
    this.#said = new GrowingText(said, transcript.legend, true);
    if (answer.thinking) this.#think().add(piecesOf(answer.thinking, answer.thinkingRuns));
    if (answer.content) this.#said.add(piecesOf(answer.content, answer.runs));
    this.#paint();
  }

  begin() {
    for (const one of [this.element, this.transcript.element]) one.setAttribute("aria-busy", "true");
    this.foot.append(this.#running);
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
    this.foot.before(make("p", { className: "failure" }, reason));
  }

  /** Show that the answer is complete or was stopped. */
  finish(siblings) {
    clearTimeout(this.#painting);
    this.transcript.grow(() => {
      this.#paint();
      this.#running.remove();
      if (this.answer.figures) this.foot.append(make("p", { className: "figures" }, this.answer.figures));
      this.foot.append(this.transcript.actionsOfAnswer(this.answer, siblings, this.#copy(), this.#said.element));
    });
    for (const one of [this.element, this.transcript.element]) one.removeAttribute("aria-busy");
  }

  #copy() {
    return copyButton("Copy answer", () => this.answer.content);
  }

  #think() {
    if (!this.#thinking) {
      const text = make("div");
      this.#said.element.before(make("details", { className: "thinking" }, this.summary, text));
      this.#thinking = new GrowingText(text, this.transcript.legend, false);
    }
    return this.#thinking;
  }

  #paint() {
    const { model, content, thinkingMs } = this.answer;
    tell(this.title, model || "Model");
    const took = thinkingMs ? ` for ${seconds(thinkingMs)}` : "";
    tell(this.summary, content || !this.element.ariaBusy ? `Thought${took}` : `Thinking${took}`);
    this.#thinking?.paint();
    this.#said.paint();
    tell(this.#running, this.figures.join(" · "));
  }

  /** Paint soon, after a pause that is longer if the last painting took longer. */
  #paintSoon() {
    this.#painting ??= setTimeout(() => {
      const began = performance.now();
      this.transcript.grow(() => this.#paint());
      this.#rest = REST * (performance.now() - began);
      this.#painting = null;
    }, Math.max(FRAME_MS, this.#rest));
  }
}
