// The list of the conversations in this browser: open, search, rename, delete, export and import them.

import { button, byId, make, tell } from "./dom.js";
import { fromFile, toFile } from "./exchange.js";

const TYPING_MS = 200;

export class ConversationList {
  #all = [];
  #found = null; // ids that a search found; null: no search
  #shownId = null;
  #timer = null;

  /** `onOpen(id)` is called when a conversation is chosen, `onDelete(id)` when one has been deleted. */
  constructor(store, { onOpen, onDelete }) {
    this.store = store;
    this.onOpen = onOpen;
    this.onDelete = onDelete;
    this.list = byId("conversation-list");
    byId("search").addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.look(), TYPING_MS);
    });
    byId("export-all").addEventListener("click", () => this.#export(this.#all));
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", ({ target }) => this.#import(target));
  }

  /** Read the list again. */
  async look() {
    const words = byId("search").value.trim();
    this.#found = words ? await this.store.search(words) : null;
    this.#all = await this.store.conversations();
    this.#paint();
    byId("export-all").disabled = !this.#all.length;
    if (!(await this.store.keeps())) this.#say("This browser cannot save conversations. They are lost when you close this tab.");
  }

  /** Mark the conversation that is open. */
  mark(id) {
    if (this.#shownId === id) return;
    this.#shownId = id;
    this.#paint();
  }

  #paint() {
    const shown = this.#found ? this.#all.filter(({ id }) => this.#found.has(id)) : this.#all;
    this.list.replaceChildren(...shown.map((one) => this.#row(one)));
    byId("none-found").hidden = shown.length > 0 || !this.#found;
  }

  #row(one) {
    const isShown = one.id === this.#shownId;
    const open = button(one.title, () => this.onOpen(one.id), { className: "open" });
    if (!isShown) return make("li", {}, open);
    open.setAttribute("aria-current", "true");
    const row = make("li", {}, open);
    row.append(
      make(
        "div",
        { className: "row" },
        button("Rename", () => this.#rename(one, row)),
        button("Export", () => this.#export([one])),
        button("Delete", () => this.#delete(one)),
      ),
    );
    return row;
  }

  #rename(one, row) {
    const field = make("input", { value: one.title, ariaLabel: "New name", maxLength: 200 });
    const form = make("form", {}, field);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const title = field.value.trim();
      if (title) await this.store.change(one.id, { title });
      await this.look();
      this.list.querySelector("[aria-current]")?.focus();
    });
    field.addEventListener("keydown", (event) => event.key === "Escape" && this.#paint());
    row.replaceChildren(form);
    field.select();
  }

  async #delete(one) {
    if (!confirm(`Delete “${one.title}”? This cannot be undone.`)) return;
    await this.store.delete(one.id);
    this.onDelete(one.id);
    await this.look();
  }

  async #export(conversations) {
    const all = [];
    for (const conversation of conversations) {
      all.push({ conversation, messages: await this.store.messages(conversation.id) });
    }
    const address = URL.createObjectURL(new Blob([toFile(all)], { type: "application/json" }));
    make("a", { href: address, download: "llama-duo-conversations.json" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    this.#say(`Exported: ${all.length}.`);
  }

  async #import(input) {
    const [file] = input.files;
    if (!file) return;
    try {
      const all = fromFile(await file.text());
      await this.store.add(all);
      this.#say(`Imported: ${all.length}. Existing conversations are not changed.`);
    } catch (error) {
      this.#say(error.message);
    }
    input.value = ""; // the same file may be chosen again
    await this.look();
  }

  #say(words) {
    tell(byId("list-note"), words);
  }
}
