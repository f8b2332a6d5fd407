// The theme: that of the system, unless another is chosen, which this browser keeps.

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
