// Conversations in this browser, in IndexedDB: 500 of them outgrow localStorage, which holds five million characters.
// Each message is a record that one tab only writes, so that no tab overwrites what another one has.

const NAME = "llama-duo";
const CONVERSATIONS = "conversations";
const MESSAGES = "messages";

export class Store {
  #opened = open().catch(() => null); // null: this browser keeps nothing
  #others = new BroadcastChannel(NAME);

  /** Whether anything outlives this tab. */
  async keeps() {
    return (await this.#opened) !== null;
  }

  /** `react(id, isDeleted)` when another tab has changed a conversation; id null: many. */
  onOthers(react) {
    this.#others.onmessage = ({ data }) => react(data.id, data.isDeleted);
  }

  /** All conversations without their messages, the last one changed first. */
  async conversations() {
    const found = await this.#read(CONVERSATIONS, (conversations) => conversations.getAll());
    return (found ?? []).sort((a, b) => b.changed - a.changed);
  }

  async conversation(id) {
    return (await this.#read(CONVERSATIONS, (conversations) => conversations.get(id))) ?? null;
  }

  /** In the order in which they were made. */
  async messages(id) {
    const found = await this.#read(MESSAGES, (messages) => messages.index("conversation").getAll(id));
    return (found ?? []).sort((a, b) => a.created - b.created);
  }

  async create(conversation) {
    navigator.storage?.persist?.(); // or a browser that runs short of space may forget
    await this.#write((conversations) => conversations.put(conversation));
    this.#tell(conversation.id);
  }

  /** Change some fields of a conversation; one that has been deleted stays so. */
  async change(id, fields) {
    await this.#write((conversations) => merge(conversations, id, fields));
    this.#tell(id);
  }

  /** Keep a message, unless its conversation has been deleted. */
  async save(message, { tell }) {
    const fields = { changed: Date.now(), leaf: message.id };
    await this.#write((conversations, messages) =>
      merge(conversations, message.conversation, fields, () => messages.put(message)),
    );
    if (tell) this.#tell(message.conversation);
  }

  async delete(id) {
    await this.#write((conversations, messages) => {
      conversations.delete(id);
      messages.index("conversation").getAllKeys(id).onsuccess = ({ target }) => {
        for (const key of target.result) messages.delete(key);
      };
    });
    this.#tell(id, true);
  }

  /** Add what is not there yet; {conversation, messages} each. */
  async add(all) {
    await this.#write((conversations, messages) => {
      for (const { conversation, messages: its } of all) {
        addNew(conversations, conversation);
        for (const message of its) addNew(messages, message);
      }
    });
    this.#tell(null);
  }

  /** The ids of the conversations in which `words` stand. */
  async search(words) {
    const wanted = words.toLocaleLowerCase();
    const isIn = (text) => text.toLocaleLowerCase().includes(wanted);
    const found = (await this.conversations()).filter(({ title }) => isIn(title)).map(({ id }) => id);
    const messages = (await this.#read(MESSAGES, (messages) => messages.getAll())) ?? [];
    return new Set([...found, ...messages.filter(({ content }) => isIn(content)).map((one) => one.conversation)]);
  }

  #tell(id, isDeleted = false) {
    this.#others.postMessage({ id, isDeleted });
  }

  async #read(name, ask) {
    const database = await this.#opened;
    if (!database) return undefined;
    const request = ask(database.transaction(name).objectStore(name));
    return new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  }

  async #write(change) {
    const database = await this.#opened;
    if (!database) return;
    const transaction = database.transaction([CONVERSATIONS, MESSAGES], "readwrite");
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    change(transaction.objectStore(CONVERSATIONS), transaction.objectStore(MESSAGES));
    await ended;
  }
}

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(CONVERSATIONS, { keyPath: "id" });
      request.result.createObjectStore(MESSAGES, { keyPath: "id" }).createIndex("conversation", "conversation");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function merge(conversations, id, fields, then = () => {}) {
  conversations.get(id).onsuccess = ({ target }) => {
    if (!target.result) return;
    conversations.put({ ...target.result, ...fields });
    then();
  };
}

function addNew(store, record) {
  store.add(record).onerror = (event) => {
    event.preventDefault(); // it is there: the transaction goes on
    event.stopPropagation();
  };
}
