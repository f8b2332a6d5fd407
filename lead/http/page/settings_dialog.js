// What one conversation asks with: a model, a system prompt, and how tokens are chosen.

import { byId } from "./dom.js";

const SAMPLING = ["temperature", "top_p", "max_tokens", "seed"];

export class SettingsDialog {
  /** `conversation()` is the one that is open. */
  constructor(conversation) {
    this.dialog = byId("settings-dialog");
    byId("settings").addEventListener("click", () => this.#open(conversation.settings));
    byId("settings-form").addEventListener("submit", (event) => {
      event.preventDefault();
      conversation.setSettings(read());
      this.dialog.close();
      byId("question").focus();
    });
    byId("settings-cancel").addEventListener("click", () => this.dialog.close());
  }

  /** The names of the models that there are: with several, one can be chosen. */
  offer(names) {
    const options = names.map((name) => new Option(name, name));
    byId("model-choice").replaceChildren(new Option("the one in use", ""), ...options);
    byId("model-row").hidden = names.length < 2;
  }

  #open({ model, system, sampling }) {
    byId("model-choice").value = model;
    byId("system").value = system;
    for (const name of SAMPLING) byId(name).value = sampling[name] ?? "";
    this.dialog.showModal();
  }
}

/** An empty field leaves the choice to the lead. */
function read() {
  const given = SAMPLING.filter((name) => byId(name).value !== "");
  const sampling = Object.fromEntries(given.map((name) => [name, Number(byId(name).value)]));
  return { model: byId("model-choice").value, system: byId("system").value.trim(), sampling };
}
