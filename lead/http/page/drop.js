// Text files that are dropped on the page become part of the question.

const MAX_BYTES = 1 << 20;

/** `onText(text)` with what to add to the question, `onTrouble(sentence)` if a file is none. */
export function takeDrops(target, onText, onTrouble) {
  target.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    target.classList.add("dropping");
  });
  target.addEventListener("dragleave", ({ relatedTarget }) => {
    if (!relatedTarget) target.classList.remove("dropping");
  });
  target.addEventListener("drop", async (event) => {
    target.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault(); // or the browser leaves the page for the file
    for (const file of [...event.dataTransfer.files]) {
      const text = await textOf(file);
      if (text === null) onTrouble(`${file.name} is no text file of at most 1 MiB`);
      else onText(quoted(file.name, text));
    }
  });
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

/** In a fence that is longer than any in it. */
function quoted(name, text) {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((marks) => marks.length));
  const fence = "`".repeat(longest + 1);
  return `${name}:\n${fence}\n${text.replace(/\n?$/, "\n")}${fence}\n`;
}
