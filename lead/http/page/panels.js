// The figures that the lead reports once a second: speed, backs, planner.

import { drawBars, drawCurve, shade } from "./charts.js";
import { byId, make, makeSvg, tell } from "./dom.js";
import { count, milliseconds, share, speed } from "./figures.js";
import { drawNetwork } from "./network.js";
import { OWN, colorOf } from "./sources.js";

const N_SAMPLES = 120;
const N_RECENT = 5; // samples in a mean that does not jump
const MAX_WIDTH = 33; // the widest batch of one text: 32 draft tokens and one before them

/** Rates of a counter that only grows. */
class Rate {
  #before = null;
  samples = [];

  /** The mean of the last seconds. */
  get recent() {
    const last = this.samples.slice(-N_RECENT);
    return last.reduce((sum, rate) => sum + rate, 0) / (last.length || 1);
  }

  /** Begin a pause: the next count gives no rate. */
  pause() {
    this.#before = null;
  }

  /** Add the count `n` at the time `now` in milliseconds; returns the rate, 0 if the counter has restarted. */
  add(n, now) {
    const before = this.#before;
    this.#before = { n, now };
    const rate = before && n >= before.n ? (1000 * (n - before.n)) / (now - before.now) : 0;
    this.samples.push(rate);
    if (this.samples.length > N_SAMPLES) this.samples.shift();
    return rate;
  }
}

export class Panels {
  #speed = new Rate();
  #wasOff = [];
  #backs = new Map();

  /** `told` is what `GET /v1/speculation` answers. */
  show(told, now) {
    this.#showSpeed(told.planner, now);
    this.#showBacks(told, now);
    if (told.planner) showPlanner(told.planner);
  }

  pause() {
    tell(byId("rate"), "0");
    this.#speed.pause();
    for (const back of this.#backs.values()) back.rate.pause();
  }

  #showSpeed(planner, now) {
    const rate = this.#speed.add(planner?.n_committed ?? 0, now);
    this.#wasOff.push(planner?.policy === "off");
    if (this.#wasOff.length > N_SAMPLES) this.#wasOff.shift();
    const most = Math.max(...this.#speed.samples);
    tell(byId("rate"), rate ? speed(rate) : "0");
    tell(byId("rate-most"), most ? `peak ${speed(most)}` : "");
    const chart = byId("rate-chart");
    drawCurve(chart, this.#speed.samples, N_SAMPLES, most);
    shade(chart, this.#wasOff, N_SAMPLES);
  }

  #showBacks({ backs, planner }, now) {
    const gone = new Set(this.#backs.keys());
    for (const told of backs) {
      gone.delete(told.name);
      if (!this.#backs.has(told.name)) {
        const back = new BackView(told.name);
        this.#backs.set(told.name, back);
        byId("backs").append(back.element);
      }
      this.#backs.get(told.name).show(told, planner?.sources?.[told.name], now);
    }
    for (const name of gone) {
      this.#backs.get(name).element.remove();
      this.#backs.delete(name);
    }
    byId("no-backs").hidden = backs.length > 0;
    byId("network").toggleAttribute("hidden", !backs.length);
    const giving = [...this.#backs].map(([name, { rate }]) => ({ name, rate: rate.recent }));
    drawNetwork(byId("network"), this.#speed.recent, giving);
  }
}

/** The parts of the time from a correction to a back's first new token. */
function itsParts({ first_draft_ms, waited_ms, drafted_ms }) {
  if (waited_ms === null || drafted_ms === null) return "";
  const way = first_draft_ms - waited_ms - drafted_ms;
  if (way < 0) return ""; // they are means of different drafts
  return ` (${milliseconds(waited_ms)} waiting, ${milliseconds(drafted_ms)} drafting, ${milliseconds(way)} on the way)`;
}

class BackView {
  constructor(name) {
    this.rate = new Rate();
    this.share = make("span", { className: "share", title: "accepted share of this back's verified tokens" });
    this.about = make("p", { className: "about" });
    this.curve = makeSvg("svg", { class: "spark", role: "img", "aria-label": "Accepted tokens of this back per second" });
    this.element = make(
      "li",
      { className: colorOf(name) },
      make("span", { className: "name" }, name),
      this.share,
      this.about,
      this.curve,
    );
  }

  /** `told`: the lead's record of the back. `learned`: the planner's, absent before the first draft. */
  show(told, learned, now) {
    tell(this.share, `${share(told.n_accepted_tokens, told.n_used_tokens)} accepted`);
    const parts = [told.model];
    if (learned?.first_draft_ms) parts.push(`answers in ${milliseconds(learned.first_draft_ms)}${itsParts(learned)}`);
    if (learned?.token_ms) parts.push(`${milliseconds(learned.token_ms)} per token`);
    tell(this.about, parts.join(" · "));
    this.rate.add(told.n_accepted_tokens, now);
    drawCurve(this.curve, this.rate.samples, N_SAMPLES, Math.max(...this.rate.samples));
  }
}

function showPlanner(planner) {
  showSums(planner);
  const costs = Object.entries(planner.step_ms ?? {}).filter(([n]) => Number(n) <= MAX_WIDTH);
  const single = planner.step_ms?.["1"];
  drawBars(
    byId("cost"),
    costs.map(([n, ms]) => ({ label: n, value: ms, text: costInWords(n, ms, single) })),
  );
  tell(byId("cost-note"), single ? `T(1) is ${milliseconds(single)}` : "not measured yet");
  const depths = Object.entries(planner.depths ?? {}).map(([depth, n]) => [Number(depth), n]);
  const n_all = depths.reduce((sum, [, n]) => sum + n, 0);
  const deepest = Math.max(0, ...depths.map(([depth]) => depth));
  const byDepth = new Map(depths);
  drawBars(
    byId("depth"),
    Array.from({ length: n_all ? deepest + 1 : 0 }, (_, depth) => {
      const n = byDepth.get(depth) ?? 0;
      return { label: String(depth), value: n, text: `depth ${depth}: ${share(n, n_all)} of steps` };
    }),
  );
}

function costInWords(n, ms, single) {
  const ratio = single ? ` (${(ms / single).toFixed(2)} × T(1))` : "";
  return `${n} token${n === "1" ? "" : "s"}: ${milliseconds(ms)}${ratio}`;
}

function showSums(planner) {
  const rows = [
    ["Tokens per step", planner.n_steps ? perStep(planner) : "–"],
    ["Drafts accepted", share(planner.n_accepted_tokens, planner.n_draft_tokens)],
    ["Tokens generated", count(planner.n_committed)],
    ["Policy", planner.policy],
    ...ownSources(planner.sources ?? {}),
  ];
  const list = byId("sums");
  if (list.children.length !== 2 * rows.length) {
    list.replaceChildren(...rows.flatMap(([name]) => [make("dt", {}, name), make("dd")]));
  }
  const values = list.querySelectorAll("dd");
  rows.forEach(([, value], i) => tell(values[i], value));
}

/** The share of right tokens among all tokens proposed by each of the lead's own sources, verified or not. */
function ownSources(learned) {
  return [...OWN]
    .filter(([source]) => learned[source]?.n_scored)
    .map(([source, name]) => [
      `Drafts of ${name}`,
      `${share(learned[source].n_right, learned[source].n_scored)} right`,
    ]);
}

/** Tokens per step of one text: a step of several texts counts once for each. */
function perStep(planner) {
  const n = Object.values(planner.depths).reduce((sum, times) => sum + times, 0);
  return n ? (planner.n_committed / n).toFixed(2) : "–";
}
