// Conversations in this browser, in IndexedDB: 500 conversations outgrow localStorage, which holds five million
// characters. Each message is a record that only one tab writes, so no tab overwrites another tab's messages.

const NAME = "llama-duo";
const CONVERSATIONS = "conversations";
const MESSAGES = "messages";
const IMAGES = "images"; // apart from the messages, because a search reads all messages
const STORES = [CONVERSATIONS, MESSAGES, IMAGES];

export class Store {
  #opened = open().catch(() => null); // null: this browser keeps nothing
  #others = new BroadcastChannel(NAME);

  /** Whether this browser keeps conversations after this tab is closed. */
  async keeps() {
    return (await this.#opened) !== null;
  }

  /** Call `react(id, isDeleted)` when another tab has changed a conversation; id null: several conversations. */
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

  /** The messages of a conversation, the oldest first. */
  async messages(id) {
    const itsOwn = (records) => records.index("conversation").getAll(id);
    const [found, images] = [await this.#read(MESSAGES, itsOwn), await this.#read(IMAGES, itsOwn)];
    const byId = new Map(images?.map((image) => [image.id, image]));
    const joined = (found ?? []).map((message) => withImages(message, byId));
    return joined.sort((a, b) => a.created - b.created);
  }

  async create(conversation) {
    navigator.storage?.persist?.(); // or a browser that runs short of space may delete conversations
    await this.#write((conversations) => conversations.put(conversation));
    this.#tell(conversation.id);
  }

  /** Change some fields of a conversation, unless it has been deleted. */
  async change(id, fields) {
    await this.#write((conversations) => merge(conversations, id, fields));
    this.#tell(id);
  }

  /** Keep a message, unless its conversation has been deleted. */
  async save(message, { tell }) {
    const fields = { changed: Date.now(), leaf: message.id };
    const { record, images } = split(message);
    await this.#write((conversations, messages, pictures) =>
      merge(conversations, message.conversation, fields, () => {
        messages.put(record);
        for (const image of images) pictures.put(image);
      }),
    );
    if (tell) this.#tell(message.conversation);
  }

  async delete(id) {
    await this.#write((conversations, ...others) => {
      conversations.delete(id);
      for (const records of others) {
        records.index("conversation").getAllKeys(id).onsuccess = ({ target }) => {
          for (const key of target.result) records.delete(key);
        };
      }
    });
    this.#tell(id, true);
  }

  /** Add a list of {conversation, messages}, without overwriting existing records. */
  async add(all) {
    await this.#write((conversations, messages, pictures) => {
      for (const { conversation, messages: its } of all) {
        addNew(conversations, conversation);
        for (const { record, images } of its.map(split)) {
          addNew(messages, record);
          for (const image of images) addNew(pictures, image);
        }
      }
    });
    this.#tell(null);
  }

  /** The ids of the conversations that contain `words`, in their title or a message. */
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
    const transaction = database.transaction(STORES, "readwrite");
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    change(...STORES.map((name) => transaction.objectStore(name)));
    await ended;
  }
}

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 2);
    request.onupgradeneeded = () => {
      const has = request.result.objectStoreNames;
      for (const name of STORES.filter((one) => !has.contains(one))) {
        const records = request.result.createObjectStore(name, { keyPath: "id" });
        if (name !== CONVERSATIONS) records.createIndex("conversation", "conversation");
      }
    };
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close(); // or a newer page in another tab waits for this one
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another tab has an older version of this page open"));
  });
}

function merge(conversations, id, fields, then = () => {}) {
  conversations.get(id).onsuccess = ({ target }) => {
    if (!target.result) return;
    conversations.put({ ...target.result, ...fields });
    then();
  };
}

/** A message in the stored form: a `record` with the ids of its images, and the `images`. */
function split(message) {
  const { conversation, images = [] } = message;
  if (!images.length) return { record: message, images };
  return {
    record: { ...message, images: images.map(({ id }) => id) },
    images: images.map((image) => ({ ...image, conversation })),
  };
}

function withImages(record, byId) {
  if (!record.images?.length) return record;
  return { ...record, images: record.images.flatMap((id) => byId.get(id) ?? []) };
}

function addNew(store, record) {
  store.add(record).onerror = (event) => {
    event.preventDefault(); // it is there: the transaction goes on
    event.stopPropagation();
  };
}
