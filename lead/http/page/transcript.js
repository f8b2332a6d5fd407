// The conversation as it is shown.

import { make } from "./dom.js";
import { colourOf, nameOf } from "./sources.js";

const NEAR_PX = 48;

export class Transcript {
  #welcome;

  constructor(element, legend) {
    this.element = element;
    this.legend = legend;
    this.#welcome = element.firstElementChild;
  }

  clear() {
    this.element.replaceChildren(this.#welcome);
  }

  addQuestion(text) {
    this.#welcome.remove();
    const question = make("article", { className: "question" }, make("h2", {}, "You"), make("div", {}, text));
    this.element.append(question);
    this.scrollDown();
  }

  /** An empty answer to fill. */
  addAnswer() {
    const answer = new Answer(this);
    this.element.append(answer.element);
    this.element.setAttribute("aria-busy", "true");
    this.scrollDown();
    return answer;
  }

  /** Do something that makes the conversation longer; who reads its end goes on reading its end. */
  grow(change) {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    change();
    if (atEnd) this.scrollDown();
  }

  scrollDown() {
    this.element.scrollTop = this.element.scrollHeight;
  }
}

class Answer {
  #thinking = null;
  #source = null; // of the piece before

  constructor(transcript) {
    this.transcript = transcript;
    this.said = make("div", { className: "said" });
    this.element = make("article", { className: "answer" }, make("h2", {}, "Model"), this.said);
    this.element.setAttribute("aria-busy", "true");
  }

  /** `pieces` as `Attribution` gives them. */
  append(pieces) {
    this.transcript.grow(() => this.#fill(this.said, pieces));
  }

  appendThinking(pieces) {
    if (!this.#thinking) {
      this.#thinking = make("div", { className: "thinking" });
      this.said.before(this.#thinking);
    }
    this.transcript.grow(() => this.#fill(this.#thinking, pieces));
  }

  /** It is complete, or was stopped. */
  finish(figures) {
    this.#end(make("p", { className: "figures" }, figures));
  }

  fail(reason) {
    this.#end(make("p", { className: "failure" }, reason));
  }

  #end(note) {
    this.transcript.grow(() => this.element.append(note));
    this.element.removeAttribute("aria-busy");
    this.transcript.element.removeAttribute("aria-busy");
  }

  #fill(element, pieces) {
    for (const { text, source } of pieces) {
      // The space before a word is coloured within a run only: at its edge it looks like a mistake.
      const nSpaces = source === this.#source ? 0 : text.length - text.trimStart().length;
      this.#source = source;
      if (source === null || nSpaces === text.length) {
        element.append(text);
        continue;
      }
      this.transcript.legend.add(source);
      const about = { className: `token ${colourOf(source)}`, title: `drafted by ${nameOf(source)}` };
      element.append(text.slice(0, nSpaces), make("span", about, text.slice(nSpaces)));
    }
  }
}
