// A picture of the lead and its backs: the more of a back's tokens become text, the thicker its line.

import { makeSvg } from "./dom.js";
import { speed } from "./figures.js";
import { colorOf } from "./sources.js";

const WIDTH = 300;
const HEIGHT = 132;
const BOX = { width: 84, height: 34 };
const MAX_BACKS = 5; // more do not fit beside each other; the list below has all
const NAME_LENGTH = 11;
const THICKEST = 7;

/** Draw the lead with its `rate` of tokens per second, and `backs` {name, rate} with accepted tokens per second. */
export function drawNetwork(svg, rate, backs) {
  const shown = backs.slice(0, MAX_BACKS);
  const top = { x: WIDTH / 2, y: BOX.height / 2 + 1 };
  const places = shown.map((_, i) => ({ x: (WIDTH * (i + 0.5)) / shown.length, y: HEIGHT - BOX.height / 2 - 1 }));
  const width = Math.min(BOX.width, WIDTH / (shown.length || 1) - 6);
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("aria-label", inWords(rate, backs));
  svg.replaceChildren(
    ...shown.map((back, i) => line(top, places[i], back, rate)),
    box(top, BOX.width, "lead", `${speed(rate)} tokens/s`, ""),
    ...shown.map((back, i) => box(places[i], width, back.name, `+${speed(back.rate)}/s`, colorOf(back.name))),
  );
}

function line(from, to, { name, rate }, all) {
  const stroke = 1 + (THICKEST - 1) * (all ? Math.min(1, rate / all) : 0);
  return makeSvg("path", { class: `link ${colorOf(name)}`, "stroke-width": stroke, d: `M${from.x} ${from.y}L${to.x} ${to.y}` });
}

function box({ x, y }, width, name, gives, color) {
  const group = makeSvg("g", { class: `machine ${color}` });
  const most = Math.max(3, Math.floor((NAME_LENGTH * width) / BOX.width));
  const said = name.length > most ? `${name.slice(0, most - 1)}…` : name;
  group.append(
    makeSvg("rect", { x: x - width / 2, y: y - BOX.height / 2, width, height: BOX.height, rx: 6 }),
    text(x, y - 3, said, "who"),
    text(x, y + 11, gives, "gives"),
  );
  return group;
}

function text(x, y, words, kind) {
  const element = makeSvg("text", { x, y, class: kind });
  element.textContent = words;
  return element;
}

function inWords(rate, backs) {
  const each = backs.map((back) => `${back.name} gives ${speed(back.rate)}`);
  return [`The lead generates ${speed(rate)} tokens per second`, ...each].join("; ");
}
