// Copying texts, even over plain HTTP, where browsers have no navigator.clipboard.

import { button, make } from "./dom.js";

const SHOWN_MS = 1500;

/** A button that copies the text that `text(button)` returns. */
export function copyButton(label, text) {
  const copy = async ({ target }) => {
    target.textContent = (await copied(text(target))) ? "Copied" : "Not copied";
    setTimeout(() => (target.textContent = "Copy"), SHOWN_MS);
  };
  return button("Copy", copy, { ariaLabel: label });
}

async function copied(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const focused = document.activeElement;
  const field = make("textarea", { value: text, className: "unseen" });
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}
