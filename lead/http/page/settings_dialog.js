// The settings of one conversation or of all new conversations: the system prompt, and how tokens are chosen.

import { byId } from "./dom.js";

const NEW = "llama-duo.settings"; // of new conversations
const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

/** The settings of a new conversation, {system, sampling}. */
export const settingsOfNew = () => JSON.parse(localStorage.getItem(NEW)) ?? { system: "", sampling: {} };

export class SettingsDialog {
  /** `conversation`: the conversation that is open. */
  constructor(conversation) {
    this.dialog = byId("settings-dialog");
    byId("settings").addEventListener("click", () => this.#open(conversation.settings));
    byId("settings-form").addEventListener("submit", (event) => {
      event.preventDefault();
      conversation.setSettings(read());
      if (byId("for-new").checked) localStorage.setItem(NEW, JSON.stringify(read()));
      this.dialog.close();
      byId("question").focus();
    });
    byId("settings-cancel").addEventListener("click", () => this.dialog.close());
  }

  #open({ system, sampling }) {
    byId("system").value = system;
    for (const name of SAMPLING) byId(name).value = sampling[name] ?? "";
    byId("for-new").checked = false;
    this.dialog.showModal();
  }
}

function read() {
  const given = SAMPLING.filter((name) => byId(name).value !== "");
  const sampling = Object.fromEntries(given.map((name) => [name, Number(byId(name).value)]));
  return { system: byId("system").value.trim(), sampling };
}
