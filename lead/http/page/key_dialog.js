// The dialog that asks for a key, and the button that forgets it.

import { key } from "./api.js";
import { byId, tell } from "./dom.js";

/** `onKey` is called when the key has changed, or the dialog was closed. */
export class KeyDialog {
  constructor(onKey) {
    this.dialog = byId("key-dialog");
    this.input = byId("key");
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const given = this.input.value.trim();
      if (!key.isOne(given)) {
        tell(byId("key-reason"), "A key can have only ASCII letters, digits and symbols.");
        return;
      }
      key.set(given);
      this.input.value = "";
      this.dialog.close();
      byId("question").focus();
    });
    byId("forget-key").addEventListener("click", () => {
      key.forget();
      this.showButton();
      onKey();
    });
    // Without a key, `onKey` opens the dialog again, however it was closed.
    this.dialog.addEventListener("close", () => {
      this.showButton();
      onKey();
    });
    this.showButton();
  }

  /** Open the dialog, and show `reason`; does nothing if it is open. */
  open(reason) {
    if (this.dialog.open) return;
    tell(byId("key-reason"), reason);
    this.dialog.showModal();
    this.input.focus();
  }

  showButton() {
    byId("forget-key").hidden = key.get() === null;
  }
}
