// On a narrow screen one of three is shown: the chat, the list of conversations, the figures of the machines.

import { byId } from "./dom.js";

const BUTTONS = { list: "show-list", figures: "show-figures" };

export class Views {
  constructor() {
    for (const [view, id] of Object.entries(BUTTONS)) {
      byId(id).addEventListener("click", () => this.#show(document.body.dataset.view === view ? "chat" : view));
    }
  }

  showChat() {
    this.#show("chat");
  }

  search() {
    this.#show("list");
    byId("search").focus();
  }

  #show(view) {
    document.body.dataset.view = view;
    for (const [name, id] of Object.entries(BUTTONS)) byId(id).setAttribute("aria-expanded", String(name === view));
  }
}
