// Invitations, for people whose key allows them: codes and QR codes, the joined machines, and whether the lead is open.

import { LeadError, addApp, closeDoor, invite, members, revoke } from "./api.js";
import { copyButton } from "./copying.js";
import { button, byId, make, makeSvg, tell } from "./dom.js";

const QUIET_ZONE = 4; // light modules around a QR code (ISO/IEC 18004)

export class Invitations {
  constructor() {
    this.section = byId("invitations");
    this.dialog = byId("invite-dialog");
    byId("invite").addEventListener("click", () => this.#ask());
    byId("invite-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#invite(new FormData(event.target).get("what"));
    });
    byId("invite-done").addEventListener("click", () => this.dialog.close());
    byId("close-door").addEventListener("click", () => this.#close());
  }

  /** Show who has joined; show nothing if the key does not allow that. */
  async look() {
    try {
      const told = await members();
      this.section.hidden = false;
      byId("open").hidden = !told.open;
      tell(byId("open-note"), `Invited machines reach this lead at ${told.addresses.join(" or ")}.`);
      byId("members").replaceChildren(...told.members.map((member) => this.#row(member)));
    } catch (error) {
      this.section.hidden = true;
      if (!(error instanceof LeadError)) throw error;
    }
  }

  #ask() {
    byId("code").hidden = true;
    byId("invite-form").hidden = false;
    tell(byId("invitation-note"), "");
    this.dialog.showModal();
  }

  async #invite(what) {
    try {
      const { lines, qr, authority, note } = await MAKE[what]();
      byId("invite-form").hidden = true;
      byId("code").hidden = false;
      byId("code-lines").replaceChildren(...lines.flatMap(line));
      byId("qr").toggleAttribute("hidden", !qr);
      if (qr) drawQr(byId("qr"), qr);
      byId("authority").hidden = !authority;
      byId("authority").open = false;
      if (authority) {
        const { url, fingerprint, authority_qr } = authority;
        byId("authority-lines").replaceChildren(...[["CA certificate", url], ["Its SHA-256", fingerprint]].flatMap(line));
        drawQr(byId("authority-qr"), authority_qr);
      }
      tell(byId("invitation-note"), note);
      this.dialog.querySelector("code").focus();
    } catch (error) {
      tell(byId("invitation-note"), error.message);
    }
    await this.look();
  }

  async #close() {
    if (!confirm("Close the lead to invited machines? They are disconnected until you invite again.")) return;
    await this.#tried(closeDoor());
  }

  async #revoke(name) {
    if (!confirm(`Revoke “${name}”? It is disconnected, and needs a new invitation to join again.`)) return;
    await this.#tried(revoke(name));
  }

  async #tried(asking) {
    try {
      await asking;
      tell(byId("members-note"), "");
    } catch (error) {
      tell(byId("members-note"), error.message);
    }
    await this.look();
  }

  #row({ name, role }) {
    return make(
      "li",
      { className: "row" },
      make("span", { className: "name" }, name),
      make("span", { className: "note" }, role),
      button("Revoke", () => this.#revoke(name), { className: "quiet", ariaLabel: `Revoke ${name}` }),
    );
  }
}

// By kind of invitation: make it, and return the texts to copy, the QR code, and the instructions.
const MAKE = {
  back: async () => {
    const { command, seconds, addresses } = await invite("back");
    return {
      lines: [["Command", command]],
      note: `${within(seconds)}, run this command on one machine that reaches ${or(addresses)}. That machine can read the texts that it drafts for.`,
    };
  },
  client: async () => {
    const { command, page, qr, seconds, ...its } = await invite("client");
    return {
      lines: [
        ["Address", page],
        ["Or a command", command],
      ],
      qr,
      authority: { url: new URL("/ca.crt", page).href, ...its },
      note: `${within(seconds)}, scan the code with a phone, or open the address or run the command on another computer. The code works once. The person you invite sees only their own questions.`,
    };
  },
  app: async () => {
    const { name, key, addresses, ...its } = await addApp();
    return {
      lines: [
        ["Base URL", `https://${addresses[0]}/v1`],
        ["API key", key],
      ],
      authority: { url: `https://${addresses[0]}/ca.crt`, ...its },
      note: `The key is shown only now. To end its access, revoke “${name}”.`,
    };
  },
};

const or = (addresses) => addresses.join(" or ");
const within = (seconds) => `Within ${Math.round(seconds / 60)} minutes`;

function line([label, text]) {
  const copy = copyButton(`Copy: ${label}`, () => text);
  return [make("p", { className: "note" }, label), make("div", { className: "row" }, make("code", { tabIndex: 0 }, text), copy)];
}

function drawQr(svg, rows) {
  const side = rows.length + 2 * QUIET_ZONE;
  const dark = rows.flatMap((row, y) =>
    [...row].flatMap((module, x) => (module === "1" ? `M${x + QUIET_ZONE} ${y + QUIET_ZONE}h1v1h-1z` : [])),
  );
  svg.setAttribute("viewBox", `0 0 ${side} ${side}`);
  svg.replaceChildren(makeSvg("rect", { width: side, height: side, fill: "#fff" }), makeSvg("path", { d: dark.join(""), fill: "#000" }));
}
