// Making elements. Text is only ever set as text.

/** An element with the properties `of` and these children; children that are null or false are left out. */
export function make(tag, of = {}, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, of);
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

/** A button that calls `then`; its style is quiet and small, unless `of` has another `className`. */
export function button(label, then, of = {}) {
  const element = make("button", { type: "button", className: "quiet small", ...of }, label);
  element.addEventListener("click", then);
  return element;
}

/** An SVG element with attributes. */
export function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Set text only where it changes, so that nothing is read aloud or painted again. */
export function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
