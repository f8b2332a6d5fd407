// Makes elements from descriptions. Unchanged elements stay, so a growing text costs only the time for its new part.

import { make } from "./dom.js";

const described = new WeakMap(); // what each node was made of

/**
 * Replace `parent`'s children, starting at index `from`, with the elements that `wanted` describes. A description is a
 * text, {tag, of, children}, or {key, build}, where `build()` makes the element, which stays while its key is the same.
 * An element with `isSettled` is not compared again.
 */
export function patch(parent, wanted, from = 0) {
  let node = parent.childNodes[from] ?? null;
  for (const one of wanted) {
    if (node && isLike(described.get(node), one)) update(node, one);
    else node = put(parent, node, create(one));
    node = node.nextSibling;
  }
  while (node) {
    const next = node.nextSibling;
    node.remove();
    node = next;
  }
}

function isLike(old, one) {
  if (typeof old !== "object" || typeof one !== "object") return typeof old === typeof one;
  return old.tag === one.tag && old.key === one.key && hasSame(old.of, one.of);
}

function hasSame(of, other) {
  if (of === other) return true;
  const names = Object.keys(of ?? {});
  return names.length === Object.keys(other ?? {}).length && names.every((name) => of[name] === other[name]);
}

function update(node, one) {
  if (typeof one === "string") {
    if (node.data !== one) node.data = one;
  } else if (!one.build && described.get(node) !== one) {
    if (one.isSettled) described.set(node, one);
    patch(node, one.children ?? []);
  }
}

function create(one) {
  const node = typeof one === "string" ? document.createTextNode(one) : (one.build?.() ?? make(one.tag, one.of));
  described.set(node, one);
  if (one.children) patch(node, one.children);
  return node;
}

function put(parent, old, fresh) {
  if (old) old.replaceWith(fresh);
  else parent.append(fresh);
  return fresh;
}
