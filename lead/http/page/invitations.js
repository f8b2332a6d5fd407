// Inviting machines, for those whose key allows it: a code with its QR code, who has joined, and whether the lead is open.

import { LeadError, closeDoor, invite, members, revoke } from "./api.js";
import { copyButton } from "./copying.js";
import { button, byId, make, makeSvg, tell } from "./dom.js";

// By the role of the machine that joins: its command, and what it may do.
const ROLES = {
  back: ["back --model MODEL", "It reads the texts for which it drafts."],
  client: ["chat", "It asks questions, and sees no one else's."],
};
const QUIET_ZONE = 4; // light modules around a QR code (ISO/IEC 18004)

export class Invitations {
  constructor() {
    this.section = byId("invitations");
    this.dialog = byId("invite-dialog");
    byId("invite").addEventListener("click", () => this.#ask());
    byId("invite-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#invite(new FormData(event.target).get("role"));
    });
    byId("invite-done").addEventListener("click", () => this.dialog.close());
    byId("close-door").addEventListener("click", () => this.#close());
    byId("join-row").append(copyButton("Copy the command", () => byId("join").textContent));
  }

  /** Look again who has joined; who may not know is shown nothing. */
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

  async #invite(role) {
    try {
      const { code, qr, seconds, addresses } = await invite(role);
      const [command, may] = ROLES[role];
      byId("invite-form").hidden = true;
      byId("code").hidden = false;
      tell(byId("join"), `${command} --join ${code}`);
      drawQr(byId("qr"), qr);
      tell(
        byId("invitation-note"),
        `Run this on one machine that reaches ${addresses.join(" or ")}, within ${Math.round(seconds / 60)} minutes. ${may}`,
      );
      byId("join").focus();
    } catch (error) {
      tell(byId("invitation-note"), error.message);
    }
    await this.look();
  }

  async #close() {
    if (!confirm("Close the lead to invited machines? They are disconnected, and can come back once you invite again.")) return;
    await this.#tried(closeDoor());
  }

  async #revoke(name) {
    if (!confirm(`Revoke “${name}”? It is disconnected, and needs a new invitation to come back.`)) return;
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

function drawQr(svg, rows) {
  const side = rows.length + 2 * QUIET_ZONE;
  const dark = rows.flatMap((row, y) =>
    [...row].flatMap((module, x) => (module === "1" ? `M${x + QUIET_ZONE} ${y + QUIET_ZONE}h1v1h-1z` : [])),
  );
  svg.setAttribute("viewBox", `0 0 ${side} ${side}`);
  svg.replaceChildren(makeSvg("rect", { width: side, height: side, fill: "#fff" }), makeSvg("path", { d: dark.join(""), fill: "#000" }));
}
