// The view of a conversation, with buttons for each message.

import { AnswerView } from "./answer.js";
import { button, make } from "./dom.js";
import { thumbnails } from "./images.js";

const NEAR_PX = 48;
const AT_ONCE = 4; // the last messages of a long conversation, which are shown before the others

export class Transcript {
  #welcome;
  #shown = null; // the messages given to `show`

  /**
   * `on`: the functions edit(question, text), rewrite(answer, text), again(id of the question, seed), resume(answer)
   * and choose(message), which buttons call.
   */
  constructor(element, legend, on) {
    this.element = element;
    this.legend = legend;
    this.on = on;
    this.#welcome = element.firstElementChild;
  }

  clear() {
    this.#shown = null;
    this.element.replaceChildren(this.#welcome);
  }

  /** Show a list of [message, siblings]; the last messages appear first. */
  show(messages) {
    this.clear();
    if (!messages.length) return;
    this.#shown = messages;
    this.element.replaceChildren(...messages.slice(-AT_ONCE).map((one) => this.#article(...one)));
    const [last] = messages.at(-1);
    if (last.role === "user") this.element.lastChild.append(this.#unanswered(last));
    this.scrollDown();
    if (messages.length > AT_ONCE) setTimeout(() => this.#shown === messages && this.#showEarlier());
  }

  addQuestion(question, siblings) {
    this.#welcome.remove();
    this.element.append(this.#article(question, siblings));
    this.scrollDown();
  }

  /** Add an answer that is about to be generated; returns its view. */
  addAnswer(answer) {
    this.element.querySelector(".unanswered")?.remove();
    const view = new AnswerView(answer, this);
    view.begin();
    this.element.append(view.element);
    this.scrollDown();
    return view;
  }

  get isEditing() {
    return this.element.querySelector("form") !== null;
  }

  /** Press the Edit button of the last question; false: there is none. */
  editLast() {
    const edit = [...this.element.querySelectorAll(".question .edit")].at(-1);
    edit?.click();
    return edit !== undefined;
  }

  /** The buttons below an answer. `text`: the element that shows the answer. */
  actionsOfAnswer(answer, siblings, copy, text) {
    const edit = button("Edit", () => this.#edit(answer, text, edit), { title: "change this answer" });
    return make(
      "div",
      { className: "row actions" },
      copy,
      edit,
      button("Regenerate", () => this.on.again(answer.parent, null), { title: "another answer to the same question" }),
      answer.seed !== null &&
        button("Repeat", () => this.on.again(answer.parent, answer.seed), {
          title: "answer again with the same seed, to compare speed",
        }),
      answer.isStopped &&
        answer.content !== "" &&
        button("Continue", () => this.on.resume(answer), { title: "continue this answer" }),
      ...this.#chooser(answer, siblings),
    );
  }

  /** Call `change`, which makes the conversation longer; if its end was visible, scroll to the new end. */
  grow(change) {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    change();
    if (atEnd) this.scrollDown();
  }

  scrollDown() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  #showEarlier() {
    const { scrollHeight, scrollTop } = this.element;
    this.element.prepend(...this.#shown.slice(0, -AT_ONCE).map((one) => this.#article(...one)));
    this.element.scrollTop = scrollTop + this.element.scrollHeight - scrollHeight;
  }

  #article(message, siblings) {
    if (message.role === "user") return this.#question(message, siblings);
    const view = new AnswerView(message, this);
    view.finish(siblings);
    return view.element;
  }

  #question(question, siblings) {
    const text = make("div", { className: "text" }, question.content);
    const edit = button("Edit", () => this.#edit(question, text, edit), { title: "change this question" });
    edit.classList.add("edit");
    const actions = make("div", { className: "row actions" }, edit, ...this.#chooser(question, siblings));
    const pictures = question.images?.length > 0 && thumbnails(question.images);
    return make("article", { className: "question" }, make("h2", {}, "You"), pictures, text, actions);
  }

  #edit(message, text, opener) {
    const isQuestion = message.role === "user";
    const [label, doIt, rows] = isQuestion ? ["Edit your question", "Ask this", 3] : ["Edit the answer", "Save", 12];
    const field = make("textarea", { value: message.content, rows, ariaLabel: label });
    const form = make(
      "form",
      {},
      field,
      make("div", { className: "row" }, make("button", {}, doIt), button("Cancel", () => close(), { title: "discard the change" })),
    );
    const close = () => {
      form.replaceWith(text);
      opener.hidden = false;
      opener.focus();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const content = isQuestion ? field.value.trim() : field.value; // the model continues an answer as it is
      if (this.element.getAttribute("aria-busy")) return; // an answer runs: the text stays here
      close();
      if (!isQuestion && content && content !== message.content) this.on.rewrite(message, content);
      if (isQuestion && (content || message.images?.length)) this.on.edit(message, content);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (!isQuestion || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
    text.replaceWith(form);
    opener.hidden = true;
    field.focus();
  }

  #unanswered(question) {
    const again = button("Ask again", () => this.on.again(question.id, null), { title: "this question has no answer" });
    return make("div", { className: "row unanswered" }, again);
  }

  /** The number of this version of a message, and buttons to the other versions; empty if it is the only version. */
  #chooser(message, siblings) {
    const i = siblings.indexOf(message);
    if (siblings.length < 2 || i < 0) return [];
    const to = (step, sign, label) => {
      const other = siblings[i + step];
      return button(sign, () => this.on.choose(other), { ariaLabel: label, disabled: !other });
    };
    const number = make("span", { className: "note" }, `${i + 1} of ${siblings.length}`);
    return [to(-1, "‹", "Previous version"), number, to(1, "›", "Next version")];
  }
}
