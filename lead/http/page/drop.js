// Files that are dropped on the page or pasted: images are attached, and text files become part of the question.

import { isImage } from "./images.js";

const MAX_BYTES = 1 << 20;

/** Calls `onText(text)` with text for the question, `onImages(files)`, and `onTrouble(sentence)` for other files. */
export function takeFiles(target, on) {
  target.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    target.classList.add("dropping");
  });
  target.addEventListener("dragleave", ({ relatedTarget }) => {
    if (!relatedTarget) target.classList.remove("dropping");
  });
  target.addEventListener("drop", (event) => {
    target.classList.remove("dropping");
    take(event, event.dataTransfer, on);
  });
  target.addEventListener("paste", (event) => {
    const isText = event.clipboardData.types.includes("text/plain"); // with a picture of it, as spreadsheets copy cells
    if (!isText && !document.querySelector("dialog[open]")) take(event, event.clipboardData, on);
  });
}

async function take(event, { files }, { onText, onImages, onTrouble }) {
  if (!files.length) return;
  event.preventDefault(); // or the browser leaves the page for the file
  const all = [...files];
  const images = all.filter(isImage);
  if (images.length) onImages(images);
  for (const file of all.filter((one) => !isImage(one))) {
    const text = await textOf(file);
    if (text === null) onTrouble(`${file.name} is neither an image nor a text file of at most 1 MiB.`);
    else onText(quoted(file.name, text));
  }
}

async function textOf(file) {
  if (file.size > MAX_BYTES) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null; // not UTF-8, or a folder
  }
}

/** The text in a fence that is longer than all fences in the text. */
function quoted(name, text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((marks) => marks.length));
  const fence = "`".repeat(longest + 1);
  return `${name}:\n${fence}\n${text.replace(/\n?$/, "\n")}${fence}\n`;
}
