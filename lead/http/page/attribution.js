// Finds the source of each part of a text. An event has the text in one field, and the tokens with sources in another.

/** Takes tokens and text as they arrive, and returns pieces {text, source}; source null: not drafted. */
export class Attribution {
  #tokens = [];

  /** `tokens` are {text, source}, as in the events of `return_speculation`. */
  push(tokens) {
    this.#tokens.push(...tokens.filter((token) => token.text));
  }

  /** The pieces of `text`, which comes next. Tokens before it, such as markers of reasoning, are skipped. */
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

/** Add `pieces` in a short form to `runs`, a list of [source, number of characters]. */
export function addTo(runs, pieces) {
  for (const { text, source } of pieces) {
    const last = runs.at(-1);
    if (last?.[0] === source) last[1] += text.length;
    else runs.push([source, text.length]);
  }
}

/** The pieces of `text`, made of its `runs`. */
export function* piecesOf(text, runs) {
  let start = 0;
  for (const [source, length] of runs) yield { text: text.slice(start, (start += length)), source };
  if (start < text.length) yield { text: text.slice(start), source: null };
}
