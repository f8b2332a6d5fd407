// Inviting machines, for those whose key allows it: a code with its QR code, and who has joined.

import { LeadError, invite, members, revoke } from "./api.js";
import { button, byId, make, makeSvg, tell } from "./dom.js";

// By the role of the machine that joins: its command, and whom the code is for.
const ROLES = {
  back: ["back --model MODEL", "one back, which reads the texts for which it drafts"],
  client: ["chat", "one person who asks questions"],
};
const QUIET_ZONE = 4; // light modules around a QR code (ISO/IEC 18004)

export class Invitations {
  constructor() {
    this.section = byId("invitations");
    byId("invite-back").addEventListener("click", () => this.#invite("back"));
    byId("invite-chat").addEventListener("click", () => this.#invite("client"));
  }

  /** Look again who has joined; who may not know is shown nothing. */
  async look() {
    try {
      const told = await members();
      this.section.hidden = false;
      byId("members").replaceChildren(...told.members.map((member) => this.#row(member)));
    } catch (error) {
      this.section.hidden = true;
      if (!(error instanceof LeadError)) throw error;
    }
  }

  async #invite(role) {
    try {
      const { code, qr, seconds, addresses } = await invite(role);
      const [command, whom] = ROLES[role];
      byId("code").hidden = false;
      tell(byId("join"), `${command} --join ${code}`);
      drawQr(byId("qr"), qr);
      tell(
        byId("invitation-note"),
        `For ${whom}, on a machine that reaches ${addresses.join(" or ")}, within ${Math.round(seconds / 60)} minutes.`,
      );
    } catch (error) {
      tell(byId("invitation-note"), error.message);
    }
    await this.look();
  }

  #row({ name, role }) {
    const drop = async () => {
      await revoke(name);
      await this.look();
    };
    return make(
      "li",
      { className: "row" },
      make("span", { className: "name" }, name),
      make("span", { className: "note" }, role),
      button("Revoke", drop, { className: "quiet", ariaLabel: `Revoke ${name}` }),
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
