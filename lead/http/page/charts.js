// Curves and bars without a library.

import { make, makeSvg } from "./dom.js";

const HEIGHT = 100;
const shown = new WeakMap(); // by list: its bars as JSON, as unchanged bars are not drawn again

/** Draw a curve through `values`, the newest on the right, in a chart of `n` points; `most` is the value at the top. */
export function drawCurve(svg, values, n, most) {
  const left = n - values.length;
  let path = "";
  values.forEach((value, i) => {
    const y = HEIGHT - 4 - ((HEIGHT - 8) * value) / (most || 1);
    path += `${i ? "L" : "M"}${left + i} ${y.toFixed(2)}`;
  });
  svg.setAttribute("viewBox", `0 0 ${n - 1} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(makeSvg("path", { d: path }));
}

/** Shade the points of a chart of `n` points for which `marked` is true; its last element is the point on the right. */
export function shade(svg, marked, n) {
  const left = n - marked.length;
  marked.forEach((is, i) => {
    if (is) svg.prepend(makeSvg("rect", { class: "off", x: left + i - 0.5, y: 0, width: 1.02, height: HEIGHT }));
  });
}

/** Draw bars {label, value, text}; `text` describes a bar in words. */
export function drawBars(list, bars) {
  const told = JSON.stringify(bars);
  if (shown.get(list) === told) return;
  shown.set(list, told);
  const most = Math.max(...bars.map((bar) => bar.value), 0);
  const every = bars.length > 16 ? 4 : 1;
  list.replaceChildren(
    ...bars.map(({ label, value, text }, i) => {
      const bar = make("div", { className: "bar" });
      bar.style.height = `${most ? (100 * value) / most : 0}%`;
      const caption = make("span", { className: "label", ariaHidden: "true" }, i % every === 0 ? label : "");
      return make("li", { title: text }, bar, caption, make("span", { className: "unseen" }, text));
    }),
  );
}
