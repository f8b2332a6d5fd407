// Which model answers: those that there are, with what is loaded, is being loaded, or does not fit.

import { byId, tell } from "./dom.js";

const LAST = "llama-duo.model"; // chosen last, for the next conversation

export class ModelPicker {
  #records = [];
  #wanted = ""; // by the conversation that is open
  #shown = "";
  #loadingSince = new Map(); // by name, in milliseconds

  /** `onChoice(name)` when a person has chosen another one. */
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

  /** The name that a request needs; empty at a lead with one model. A router may also have some that make vectors. */
  get name() {
    return this.#records.length > 1 || this.chosen?.status ? this.chosen.id : "";
  }

  /** Whether it is in memory; a lead with one model says that in another way. */
  get isLoaded() {
    return this.chosen !== null && [undefined, "loaded"].includes(stateOf(this.chosen));
  }

  /** What there is to say of one that is not loaded. */
  get state() {
    if (!this.chosen) return "this lead has no models";
    const { id, status } = this.chosen;
    if (status.failed) return `${id}: ${status.message}`;
    if (status.value !== "loading") return `${id} loads when you ask`;
    return `loading ${id}: ${Math.round((performance.now() - this.#loadingSince.get(id)) / 1000)} s`;
  }

  /** The conversation that is open wants this one; empty: any. */
  want(name) {
    this.#wanted = name;
    this.#paint();
  }

  /** `records` as the lead lists them; those that make vectors do not chat. */
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
