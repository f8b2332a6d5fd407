// The list of models to choose from, which shows what is loaded, is being loaded, or does not fit.

import { byId, tell } from "./dom.js";

const LAST = "llama-duo.model"; // chosen last, for the next conversation

export class ModelPicker {
  #records = [];
  #wanted = ""; // by the conversation that is open
  #shown = "";
  #loadingSince = new Map(); // by name, in milliseconds

  /** `onChoice(name)` is called when a person has chosen another model. */
  constructor(onChoice) {
    this.select = byId("model");
    this.select.addEventListener("change", () => {
      this.#wanted = this.select.value;
      localStorage.setItem(LAST, this.#wanted);
      onChoice(this.#wanted);
      this.#paint();
    });
  }

  /** The record of the model that answers next, as the lead lists it; null: none is known. */
  get chosen() {
    const among = (isRight) => this.#records.find(isRight);
    return (
      among(({ id }) => id === this.#wanted) ??
      among(({ id }) => id === localStorage.getItem(LAST)) ??
      among((one) => stateOf(one) === "loaded") ??
      among((one) => stateOf(one) === "loading") ??
      among(({ fits }) => fits !== false) ??
      this.#records[0] ??
      null
    );
  }

  /** The model's name for requests; empty for a lead with one model. Even a router with one chat model needs the name. */
  get name() {
    return this.#records.length > 1 || this.chosen?.status ? this.chosen.id : "";
  }

  /** Whether the chosen model is in memory; a lead with one model sends no `status`, and its model counts as loaded. */
  get isLoaded() {
    return this.chosen !== null && [undefined, "loaded"].includes(stateOf(this.chosen));
  }

  /** A text about the chosen model while it is not loaded. */
  get state() {
    if (!this.chosen) return "this lead has no models";
    const { id, status } = this.chosen;
    if (status.failed) return `${id}: ${status.message}`;
    if (status.value !== "loading") return `${id} loads when you ask`;
    return `loading ${id}: ${Math.round((performance.now() - this.#loadingSince.get(id)) / 1000)} s`;
  }

  /** Set the model of the conversation that is open; empty: any. */
  want(name) {
    this.#wanted = name;
    this.#paint();
  }

  /** Show these `records` of the lead's list, except embedding models and rerankers, which cannot chat. */
  offer(records) {
    this.#records = records.filter(({ task }) => !task);
    for (const one of this.#records) {
      const since = this.#loadingSince.get(one.id) ?? performance.now();
      if (stateOf(one) === "loading") this.#loadingSince.set(one.id, since);
      else this.#loadingSince.delete(one.id);
    }
    this.#paint();
  }

  #paint() {
    const labels = this.#records.map(labelOf);
    const shown = JSON.stringify([labels, this.chosen?.id]);
    if (shown === this.#shown) return; // or a list that is open would close
    this.#shown = shown;
    if (this.select.options.length !== labels.length) {
      this.select.replaceChildren(...labels.map(() => new Option()));
    }
    for (const [i, option] of [...this.select.options].entries()) {
      option.value = this.#records[i].id;
      tell(option, labels[i]);
    }
    this.select.value = this.chosen?.id ?? "";
    this.select.disabled = labels.length < 2;
  }
}

const stateOf = ({ status }) => status?.value;

function labelOf({ id, status, meta, fits }) {
  if (!status) return id;
  if (status.failed) return `${id} · failed`;
  if (status.value !== "unloaded") return `${id} · ${status.value}`;
  const size = meta?.size ? ` · ${(meta.size / 2 ** 30).toFixed(1)} GiB` : "";
  return `${id}${size}${fits === false ? " · does not fit" : ""}`;
}
