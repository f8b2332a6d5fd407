// The parts of the page that are shown. A narrow screen shows one of three: the chat, the list of conversations, or the
// figures of the machines. A wide screen shows the figures beside the chat, unless they are folded away.

import { byId } from "./dom.js";

const BUTTONS = { list: "show-list", figures: "show-figures" };
const NARROW = matchMedia("(max-width: 56rem)");
const FOLDED = "llama-duo.folded"; // present if the figures are folded away on a wide screen

export class Views {
  #view = "chat";

  constructor() {
    for (const [view, id] of Object.entries(BUTTONS)) byId(id).addEventListener("click", () => this.#press(view));
    NARROW.addEventListener("change", () => this.#show(this.#view));
    this.#show("chat");
  }

  showChat() {
    this.#show("chat");
  }

  search() {
    this.#show("list");
    byId("search").focus();
  }

  #press(view) {
    if (view === "figures" && !NARROW.matches) {
      if (this.#isFolded) localStorage.removeItem(FOLDED);
      else localStorage.setItem(FOLDED, "yes");
      this.#show(this.#view);
    } else this.#show(this.#view === view ? "chat" : view);
  }

  get #isFolded() {
    return localStorage.getItem(FOLDED) !== null;
  }

  #show(view) {
    this.#view = view;
    document.body.dataset.view = view;
    document.body.classList.toggle("folded", this.#isFolded);
    const isShown = { list: view === "list", figures: NARROW.matches ? view === "figures" : !this.#isFolded };
    for (const [name, id] of Object.entries(BUTTONS)) byId(id).setAttribute("aria-expanded", String(isShown[name]));
  }
}
