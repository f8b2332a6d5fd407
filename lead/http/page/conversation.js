// What has been said, and asking for more.

import { LeadError, chat } from "./api.js";
import { Attribution } from "./attribution.js";
import { count, share, speed } from "./figures.js";

const AWAY = "the lead is away";
const BROKEN_OFF = "the connection to the lead broke off";

export class Conversation {
  #messages = [];
  #hangUp = null;
  #seed = null;
  #unanswered = null; // a question for which nothing came

  /** `transcript` shows it. */
  constructor(transcript) {
    this.transcript = transcript;
  }

  get isRunning() {
    return this.#hangUp !== null;
  }

  /** Whether there is a question to ask again. */
  get hasQuestion() {
    return this.#messages.length > 0 || this.#unanswered !== null;
  }

  clear() {
    this.stop();
    this.#messages = [];
    this.#unanswered = null;
    this.transcript.clear();
  }

  stop() {
    this.#hangUp?.abort();
  }

  /** Ask and show the answer; returns a sentence on how it went. */
  ask(question, speculates) {
    this.#seed = null;
    this.transcript.addQuestion(question);
    return this.#answer(question, {}, speculates);
  }

  /** The last question once more with the same seed: the same text, perhaps at another speed. */
  askAgain(speculates) {
    const fields = this.#seed === null ? {} : { seed: this.#seed };
    if (this.#unanswered !== null) return this.#answer(this.#unanswered, fields, speculates);
    const [question] = this.#messages.splice(-2);
    return this.#answer(question.content, fields, speculates);
  }

  async #answer(question, fields, speculates) {
    const messages = this.#messages;
    messages.push({ role: "user", content: question });
    this.#unanswered = null;
    const answer = this.transcript.addAnswer();
    const told = { text: "", last: null };
    this.#hangUp = new AbortController();
    try {
      await this.#follow(answer, told, fields, speculates);
      const figures = describe(told.last.timings);
      answer.finish(figures);
      return `The answer is complete: ${figures}`;
    } catch (error) {
      return this.#explain(answer, error, told);
    } finally {
      this.#hangUp = null;
      if (told.text) messages.push({ role: "assistant", content: told.text });
      else {
        messages.pop();
        if (messages === this.#messages) this.#unanswered = question;
      }
    }
  }

  async #follow(answer, told, fields, speculates) {
    const attribution = new Attribution();
    const body = {
      messages: this.#messages,
      stream: true,
      return_speculation: true,
      ...(speculates ? {} : { "speculative.n_max": 0 }),
      ...fields,
    };
    for await (const event of chat(body, this.#hangUp.signal)) {
      attribution.push(event.speculation?.tokens ?? []);
      const [choice] = event.choices;
      const { content, reasoning_content: thinking } = choice?.delta ?? {};
      if (thinking) answer.appendThinking(attribution.take(thinking));
      if (content) {
        told.text += content;
        answer.append(attribution.take(content));
      }
      if (event.timings) {
        told.last = event;
        this.#seed = event.seed;
      }
    }
  }

  #explain(answer, error, told) {
    if (error.name === "AbortError") {
      answer.finish("stopped");
      return "The answer was stopped";
    }
    const reason = error instanceof LeadError ? error.message : told.text ? BROKEN_OFF : AWAY;
    answer.fail(reason);
    return reason;
  }
}

function describe(timings) {
  const { predicted_per_second: rate, draft_n: n, draft_n_accepted: nAccepted } = timings;
  const parts = [...(rate ? [`${speed(rate)} tokens/s`] : []), `${timings.predicted_n} tokens`];
  parts.push(n ? `${share(nAccepted, n)} of ${count(n)} draft tokens accepted` : "without drafts");
  return parts.join(" · ");
}
