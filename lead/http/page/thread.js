// The messages of a conversation, as a tree: an edited question or another answer stands beside the first one.

/** An id that needs no secure context, unlike crypto.randomUUID. */
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export class Thread {
  #messages = new Map();
  #children = new Map();
  #leaf;

  /** `messages` in the order in which they were made; `leaf`: the id of the last one shown. */
  constructor(messages = [], leaf = null) {
    for (const message of messages) this.#put(message);
    this.choose(leaf);
  }

  get leaf() {
    return this.#leaf;
  }

  /** From the first message to the last one shown. */
  path() {
    const path = [];
    for (let message = this.#messages.get(this.#leaf); message; message = this.parentOf(message)) path.push(message);
    return path.reverse();
  }

  get(id) {
    return this.#messages.get(id);
  }

  parentOf(message) {
    return this.#messages.get(message.parent);
  }

  /** What stands at the same place, itself included. */
  siblings(message) {
    return this.#children.get(message.parent) ?? [message];
  }

  /** It becomes the last one shown; it replaces the one with its id. */
  add(message) {
    this.#put(message);
    this.#leaf = message.id;
  }

  /** Show the way through `id`, down to the newest that follows it. */
  choose(id) {
    let at = this.#messages.has(id) ? id : null;
    for (let next; (next = this.#children.get(at)?.at(-1)); ) at = next.id;
    this.#leaf = at;
  }

  /** Show nothing after `id`. */
  cut(id) {
    this.#leaf = id;
  }

  #put(message) {
    const siblings = this.#children.get(message.parent) ?? [];
    const at = siblings.findIndex(({ id }) => id === message.id);
    siblings[at < 0 ? siblings.length : at] = message;
    this.#children.set(message.parent, siblings);
    this.#messages.set(message.id, message);
  }
}
