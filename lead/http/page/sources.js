// The colors of sources. A source gets the next color when it first appears, and keeps it until the page is closed.

import { byId, make, tell } from "./dom.js";

const N_COLOURS = 6;
const PLAIN = "llama-duo.plain"; // texts without colors
/** The sources in the lead itself, and their names for people. */
export const OWN = new Map([
  ["ngram", "n-grams of the text (ngram)"],
  ["prediction", "the request's prediction"],
  ["suffix", "earlier texts (suffix)"],
]);
const order = [];

/** The CSS class for text that `source` drafted. */
export function colorOf(source) {
  if (!order.includes(source)) order.push(source);
  return `s${(order.indexOf(source) % N_COLOURS) + 1}`;
}

/** The name of a source for people. */
export const nameOf = (source) => OWN.get(source) ?? source;

/** The legend of colors, which appears with the first draft, and the button that hides colors. */
export class Legend {
  #shown = new Set();

  constructor(list) {
    this.list = list;
    this.button = byId("colors");
    this.button.addEventListener("click", () => this.#show(document.body.classList.contains("plain")));
    if (localStorage.getItem(PLAIN) !== null) this.#show(false);
  }

  add(source) {
    if (this.#shown.has(source)) return;
    if (!this.#shown.size) this.list.append(make("li", {}, "the model itself"));
    this.#shown.add(source);
    const name = make("span", { className: `token ${colorOf(source)}` }, nameOf(source));
    this.list.append(make("li", {}, name));
    this.button.hidden = false;
  }

  /** Show or hide colors, also at the next visit. */
  #show(isShown) {
    tell(this.button, isShown ? "Hide colors" : "Show colors");
    document.body.classList.toggle("plain", !isShown);
    if (isShown) localStorage.removeItem(PLAIN);
    else localStorage.setItem(PLAIN, "yes");
  }
}
