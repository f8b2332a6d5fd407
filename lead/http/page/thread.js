// The messages of a conversation as a tree: versions of a question or answer have the same parent.

/** A random id; unlike crypto.randomUUID, this needs no secure context. */
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export class Thread {
  #messages = new Map();
  #children = new Map();
  #leaf;

  /** `messages`: the oldest first. `leaf`: the id of the last message shown. */
  constructor(messages = [], leaf = null) {
    for (const message of messages) this.#put(message);
    this.choose(leaf);
  }

  get leaf() {
    return this.#leaf;
  }

  /** The messages shown, from the first to the last. */
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

  /** All versions of a message, including itself. */
  siblings(message) {
    return this.#children.get(message.parent) ?? [message];
  }

  /** Add a message as the last one shown; it replaces a message with its id. */
  add(message) {
    this.#put(message);
    this.#leaf = message.id;
  }

  /** Show the messages up to `id`, and the newest messages that follow it. */
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
