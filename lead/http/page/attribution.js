// Who drafted which part of a text: the text comes in one field of an event, its tokens in another.

/** Takes tokens and text as they arrive and gives pieces {text, source}; source null: not drafted. */
export class Attribution {
  #tokens = [];

  /** `tokens` are {text, source}, as in the events of `return_speculation`. */
  push(tokens) {
    this.#tokens.push(...tokens.filter((token) => token.text));
  }

  /** The next stretch of text. What stands before it among the tokens (marks of thinking) is skipped. */
  take(text) {
    const start = this.#tokens.map((token) => token.text).join("").indexOf(text);
    if (start < 0) {
      this.#tokens = [];
      return [{ text, source: null }];
    }
    this.#cut(start);
    return this.#cut(text.length);
  }

  /** The pieces of the next `length` characters. */
  #cut(length) {
    const pieces = [];
    while (length > 0) {
      const token = this.#tokens[0];
      if (token.text.length > length) {
        pieces.push({ text: token.text.slice(0, length), source: token.source });
        this.#tokens[0] = { text: token.text.slice(length), source: token.source };
        return pieces;
      }
      pieces.push(token);
      this.#tokens.shift();
      length -= token.text.length;
    }
    return pieces;
  }
}

/** `pieces` in short: add to `runs` of [source, number of characters]. */
export function addTo(runs, pieces) {
  for (const { text, source } of pieces) {
    const last = runs.at(-1);
    if (last?.[0] === source) last[1] += text.length;
    else runs.push([source, text.length]);
  }
}

/** The pieces of `text` again. */
export function* piecesOf(text, runs) {
  let start = 0;
  for (const [source, length] of runs) yield { text: text.slice(start, (start += length)), source };
  if (start < text.length) yield { text: text.slice(start), source: null };
}
