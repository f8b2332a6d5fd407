// A conversation: its messages, and questions to the model. Messages are stored while they arrive.

import { LeadError, chat } from "./api.js";
import { Attribution, addTo } from "./attribution.js";
import { count, share, speed } from "./figures.js";
import { contentOf } from "./images.js";
import { settingsOfNew } from "./settings_dialog.js";
import { Thread, newId } from "./thread.js";

const AWAY = "the lead does not answer";
const BROKEN_OFF = "the connection to the lead broke off";
const STOPPED = "stopped";
const LEFT = "llama-duo.left"; // the answer that was being generated when this tab was left or reloaded
const SAVE_MS = 1000;
const TITLE_LENGTH = 60;

export class Conversation {
  #thread = new Thread();
  #hangUp = null;
  #record = blank();
  #isNew = true;
  #running = null; // the answer that is being generated
  #isStale = false; // another tab has changed the conversation meanwhile

  /** `transcript` shows the conversation, `store` keeps it; `onTrouble(sentence)` is called if it cannot be kept. */
  constructor(transcript, store, onTrouble) {
    this.transcript = transcript;
    this.store = store;
    this.onTrouble = onTrouble;
    addEventListener("pagehide", () => this.#running && this.#leave(this.#running));
  }

  get isRunning() {
    return this.#hangUp !== null;
  }

  /** The id of the conversation; null: it has no messages yet. */
  get id() {
    return this.#isNew ? null : this.#record.id;
  }

  /** The settings {model, system, sampling}; if `model` is empty, the lead's model answers. */
  get settings() {
    const { model = "", system, sampling } = this.#record;
    return { model, system, sampling };
  }

  /** Change some of the settings. */
  async setSettings(settings) {
    Object.assign(this.#record, settings);
    if (!this.#isNew) await this.#tried(this.store.change(this.#record.id, settings));
  }

  /** Begin a new conversation, with the settings for new conversations. */
  clear() {
    this.stop();
    this.#thread = new Thread();
    this.#record = blank();
    this.#isNew = true;
    this.transcript.clear();
  }

  /** Show a stored conversation; false: there is none with this id. */
  async open(id) {
    const record = await this.store.conversation(id);
    if (!record) return false;
    this.stop();
    this.#record = record;
    this.#isNew = false;
    this.#thread = new Thread(await this.store.messages(id), record.leaf);
    this.#show();
    return true;
  }

  /** Read the conversation again, because another tab may have added messages. */
  async refresh() {
    const { id } = this.#record;
    this.#isStale = this.isRunning || this.transcript.isEditing;
    if (this.#isStale) return;
    const [record, messages] = [await this.store.conversation(id), await this.store.messages(id)];
    if (!record || id !== this.#record.id || this.isRunning) return;
    this.#record = record;
    this.#thread = new Thread(messages, this.#thread.leaf);
    this.#show();
  }

  stop() {
    this.#hangUp?.abort();
    this.#hangUp = this.#running = null;
  }

  /** Show this version of a message instead of the version that is shown. */
  choose(message) {
    this.stop();
    this.#thread.choose(message.id);
    this.#show();
    if (!this.#isNew) this.#tried(this.store.change(this.#record.id, { leaf: this.#thread.leaf }));
  }

  /** Ask and show the answer; returns a sentence about the outcome. */
  async ask(content, images, speculates) {
    const last = this.#thread.path().at(-1);
    // A question that got no answer is replaced.
    return this.#ask(content, images, last?.role === "user" ? last.parent : (last?.id ?? null), speculates);
  }

  /** Ask another version of `question`, with the same images; the old version stays available. */
  edit(question, content, speculates) {
    return this.#ask(content, question.images ?? [], question.parent, speculates);
  }

  /** Answer the question with this id again. With the seed of an earlier answer, the new answer has the same text. */
  again(id, seed, speculates) {
    const question = this.#thread.get(id);
    this.#thread.cut(id);
    this.#show();
    return this.#answer(question, seed === null ? {} : { seed }, null, speculates);
  }

  /** Continue an answer that was stopped. The shorter version stays available, unless the new version has the same id. */
  resume(answer, speculates, id = newId()) {
    const question = this.#thread.parentOf(answer);
    this.#thread.cut(question.id);
    this.#show();
    return this.#answer(question, {}, { ...answer, id }, speculates);
  }

  /** Add an edited version of an answer, which the model can continue; the old version stays available. */
  rewrite(answer, content) {
    const own = { id: newId(), content, runs: [[null, content.length]], figures: "edited", seed: null, isStopped: true, created: after(answer) };
    this.#thread.add({ ...answer, ...own });
    this.#keep(this.#thread.get(own.id), true);
    this.#show();
  }

  /** The answer that was being generated when this tab was left, if it is still incomplete; else null. */
  get left() {
    const left = JSON.parse(sessionStorage.getItem(LEFT));
    return [left?.id, left?.parent].includes(this.#thread.leaf) ? left : null;
  }

  /** Continue the answer that `left` returned, and replace it. An answer with only reasoning begins anew. */
  takeUp(answer, speculates) {
    const begun = answer.content ? answer : { ...answer, thinking: "", thinkingRuns: [] };
    return this.resume(begun, speculates, answer.id);
  }

  #leave(answer) {
    this.#keep(answer);
    sessionStorage.setItem(LEFT, JSON.stringify(answer)); // at once: the store may be too slow
  }

  async #ask(content, images, parent, speculates) {
    const conversation = this.#record.id;
    if (this.#isNew) {
      this.#record.title = (content.trim() || images[0].name).split("\n")[0].slice(0, TITLE_LENGTH);
      this.#isNew = false;
      this.#tried(this.store.create({ ...this.#record }));
    }
    const created = after(this.#thread.get(parent));
    const question = { id: newId(), conversation, parent, role: "user", content, images, created };
    const isLast = parent === this.#thread.leaf;
    this.#thread.add(question);
    this.#tried(this.store.save(question, { tell: true }));
    if (isLast) this.transcript.addQuestion(question, this.#thread.siblings(question));
    else this.#show();
    return this.#answer(question, {}, null, speculates);
  }

  async #answer(question, fields, begun, speculates) {
    sessionStorage.removeItem(LEFT);
    const thread = this.#thread;
    const answer = emptyAnswer(question);
    if (begun) Object.assign(answer, structuredClone({ ...begun, created: answer.created }));
    const view = this.transcript.addAnswer(answer);
    const body = {
      messages: [...this.#messagesFor(begun)],
      ...(this.#record.model ? { model: this.#record.model } : {}),
      ...this.#record.sampling,
      ...(speculates ? {} : { "speculative.n_max": 0 }),
      ...fields,
    };
    const hangUp = (this.#hangUp = new AbortController());
    this.#running = answer;
    let note;
    try {
      const timings = await this.#follow(answer, view, body, hangUp.signal);
      sessionStorage.removeItem(LEFT); // the browser may have kept the page that was left
      answer.figures = describe(timings);
      note = `The answer is complete: ${answer.figures}`;
    } catch (error) {
      answer.isStopped = true;
      note = reasonOf(error, answer);
      answer.figures = note === STOPPED ? answer.figures : "";
      if (note !== STOPPED) view.fail(note);
    }
    if (this.#hangUp === hangUp) this.#hangUp = this.#running = null;
    if (answer.content || answer.thinking) {
      thread.add(answer);
      await this.#keep(answer, true); // before it is shown as complete: a reload then finds it
    }
    view.finish(thread.siblings(answer));
    if (this.#isStale) this.refresh();
    return note === STOPPED ? "The answer was stopped" : note;
  }

  *#messagesFor(begun) {
    if (this.#record.system) yield { role: "system", content: this.#record.system };
    for (const message of this.#thread.path()) {
      const content = contentOf(message);
      if (content) yield { role: message.role, content };
    }
    if (begun?.content) yield { role: begun.role, content: begun.content };
  }

  /** Add the text that arrives to `answer` and its view; returns the timings. */
  async #follow(answer, view, body, signal) {
    const attribution = new Attribution();
    const pace = new Pace();
    let saved = performance.now();
    let timings = null;
    for await (const event of chat({ ...body, stream: true, return_speculation: true }, signal)) {
      const tokens = event.speculation?.tokens ?? [];
      attribution.push(tokens);
      pace.add(tokens.length);
      const { delta = {}, finish_reason: reason } = event.choices[0] ?? {};
      const { content, reasoning_content: thinking } = delta;
      answer.model = event.model ?? answer.model;
      view.figures = pace.figures;
      answer.figures = [STOPPED, ...view.figures].join(" · "); // shown if a stop or a reload ends the answer now
      if (thinking) answer.thinkingMs = pace.ms;
      if (thinking) view.appendThinking(taken(attribution, thinking, answer, "thinking", "thinkingRuns"));
      if (content) view.append(taken(attribution, content, answer, "content", "runs"));
      if (reason) answer.isStopped = reason === "length";
      if (event.timings) {
        ({ timings } = event);
        answer.seed = event.seed;
      }
      if (performance.now() - saved < SAVE_MS) continue;
      saved = performance.now();
      this.#keep(answer);
    }
    return timings;
  }

  #keep(answer, tell = false) {
    return this.#tried(this.store.save(answer, { tell }));
  }

  async #tried(saving) {
    try {
      await saving;
    } catch (error) {
      this.onTrouble(`This browser could not save the conversation: ${error?.message ?? "no reason given"}`);
    }
  }

  #show() {
    this.transcript.show(this.#thread.path().map((message) => [message, this.#thread.siblings(message)]));
  }
}

/** The speed at which tokens arrive. */
class Pace {
  #n = 0;
  #nFirst = 0; // tokens of the first event, which arrived together
  #began = null;
  #last = null;

  add(n) {
    if (!n) return;
    this.#last = performance.now();
    this.#began ??= this.#last;
    this.#n += n;
    this.#nFirst ||= n;
  }

  /** The milliseconds between the first and the last tokens. */
  get ms() {
    return this.#began === null ? 0 : this.#last - this.#began;
  }

  get figures() {
    const rate = this.ms ? [`${speed((1000 * (this.#n - this.#nFirst)) / this.ms)} tokens/s`] : [];
    return this.#n ? [...rate, `${this.#n} tokens`] : [];
  }
}

function blank() {
  const now = Date.now();
  return { id: newId(), title: "", created: now, changed: now, leaf: null, model: "", ...settingsOfNew() };
}

/** A new answer. `runs`, `thinkingRuns`: the sources of its text and reasoning. `isStopped`: it can be continued. */
function emptyAnswer(question) {
  return {
    id: newId(),
    conversation: question.conversation,
    parent: question.id,
    role: "assistant",
    content: "",
    thinking: "",
    runs: [],
    thinkingRuns: [],
    figures: STOPPED,
    seed: null,
    model: "",
    thinkingMs: 0,
    isStopped: true,
    created: after(question),
  };
}

/** The time now, but later than the time of `message` even if the clock was set back: a message sorts after its parent. */
const after = (message) => Math.max(Date.now(), (message?.created ?? 0) + 1);

/** Add `text` and its sources to `answer`; returns its pieces. */
function taken(attribution, text, answer, field, runs) {
  const pieces = attribution.take(text);
  answer[field] += text;
  addTo(answer[runs], pieces);
  return pieces;
}

function reasonOf(error, answer) {
  if (error.name === "AbortError") return STOPPED;
  return error instanceof LeadError ? error.message : answer.content ? BROKEN_OFF : AWAY;
}

function describe(timings) {
  const { predicted_per_second: rate, draft_n: n, draft_n_accepted: nAccepted } = timings;
  const parts = [...(rate ? [`${speed(rate)} tokens/s`] : []), `${timings.predicted_n} tokens`];
  parts.push(n ? `${share(nAccepted, n)} of ${count(n)} draft tokens accepted` : "without drafts");
  return parts.join(" · ");
}
