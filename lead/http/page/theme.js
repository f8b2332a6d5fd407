// The theme: the system's, unless a person has chosen another one, which this browser remembers.

import { byId } from "./dom.js";

const CHOSEN = "llama-duo.theme";

export function followTheme() {
  const select = byId("theme");
  const apply = () => (document.documentElement.dataset.theme = select.value);
  select.value = localStorage.getItem(CHOSEN) ?? "";
  select.addEventListener("change", () => {
    localStorage.setItem(CHOSEN, select.value);
    apply();
  });
  apply();
}
