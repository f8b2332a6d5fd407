// Elements from descriptions; what is there already and stays the same is left alone, so that a text that grows costs
// what is new of it.

import { make } from "./dom.js";

const described = new WeakMap(); // what each node was made of

/**
 * Have the children of `parent` from the place `from` on be as `wanted`: of each a text, an element
 * {tag, of, children}, or {key, build} with `build()` for an element that stays while its key does. One that `isSettled`
 * is not looked at again.
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
