// The switch for speculation: for all requests if the key allows it, otherwise for the questions of this page.

import { LeadError, setPolicy } from "./api.js";
import { byId, tell } from "./dom.js";

const FORBIDDEN = 403;

export class Switch {
  #policy = null; // the lead's policy in its last report
  #usual = { policy: "adaptive", depth: 4 };
  #mineOnly = false; // this key may not change the policy for all
  #mineOff = false;
  #changing = false;

  constructor() {
    this.button = byId("switch");
    this.button.addEventListener("click", () => this.#flip());
  }

  /** Whether this page allows drafts for its questions. */
  get speculates() {
    return !this.#mineOff;
  }

  /** Whether both the lead and this page allow drafts for its questions. */
  get isOn() {
    return this.#policy !== "off" && !this.#mineOff;
  }

  /** Show the policy of `planner`, the lead's report. */
  show(planner) {
    if (this.#changing || !planner) return;
    this.#hear(planner.policy, planner.depth);
  }

  /** Forget what this key may do, because another key may be used now. */
  forget() {
    this.#mineOnly = this.#mineOff = false;
  }

  async #flip() {
    const on = !this.isOn;
    if (this.#mineOnly) {
      this.#mineOff = !on;
      this.#paint();
      return;
    }
    this.#changing = true;
    try {
      const wanted = on ? this.#usual : { policy: "off", depth: 0 };
      const { policy, depth } = await setPolicy(wanted.policy, wanted.depth ?? 0);
      this.#hear(policy, depth);
    } catch (error) {
      if (error instanceof LeadError && error.status === FORBIDDEN) {
        this.#mineOnly = true;
        this.#mineOff = this.#policy !== "off" && !on;
        this.#paint();
      } else {
        tell(byId("scope"), error instanceof LeadError ? error.message : "the lead does not answer");
      }
    } finally {
      this.#changing = false;
    }
  }

  #hear(policy, depth) {
    this.#policy = policy;
    if (policy !== "off") this.#usual = { policy, depth };
    this.#paint();
  }

  #paint() {
    this.button.disabled = this.#mineOnly && this.#policy === "off";
    this.button.setAttribute("aria-checked", String(this.isOn));
    tell(byId("scope"), this.#scope());
  }

  #scope() {
    if (this.#policy === "off") {
      return this.#mineOnly ? "Off for everyone. An admin's key can turn it on" : "Off for everyone";
    }
    if (this.#mineOff) return "Off for your questions. An admin's key can turn it off for everyone";
    return this.#mineOnly ? "On" : "On for everyone";
  }
}
