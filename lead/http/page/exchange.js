// Writes conversations to a file, and reads and checks such a file.

import { isReadImage } from "./images.js";

const FORMAT = "llama-duo conversations";
const VERSION = 1;
const ROLES = ["user", "assistant"];

/** The text of a file with `all`, a list of {conversation, messages}. */
export const toFile = (all) => JSON.stringify({ format: FORMAT, version: VERSION, conversations: all }, null, 1);

/** The list that was given to `toFile`, read from the file's text; throws an Error with a sentence. */
export function fromFile(text) {
  let told;
  try {
    told = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (told?.format !== FORMAT || told.version !== VERSION || !Array.isArray(told.conversations)) {
    throw new Error("This file has no conversations exported by this page.");
  }
  return told.conversations.map(checked);
}

function checked({ conversation, messages }, i) {
  const wrong = () => new Error(`Conversation ${i + 1} of this file has an unknown format.`);
  if (!isConversation(conversation) || !Array.isArray(messages)) throw wrong();
  const before = new Set([null]); // a parent comes first, so there are no circles
  for (const message of messages) {
    if (!isMessage(message, conversation.id) || !before.has(message.parent)) throw wrong();
    before.add(message.id);
  }
  return { conversation, messages };
}

const isText = (value) => typeof value === "string";

function isConversation(it) {
  return (
    [it?.id, it?.title, it?.system, it?.model ?? ""].every(isText) &&
    [it.created, it.changed].every(Number.isFinite) &&
    typeof it.sampling === "object" &&
    it.sampling !== null &&
    Object.values(it.sampling).every(Number.isFinite)
  );
}

function isMessage(it, conversation) {
  return (
    it?.conversation === conversation &&
    isText(it.id) &&
    isText(it.content) &&
    ROLES.includes(it.role) &&
    Number.isFinite(it.created) &&
    (it.role === "user" ? isEvery(it.images ?? [], isReadImage) : isAnswer(it))
  );
}

function isAnswer({ thinking, runs, thinkingRuns, figures, seed, model = "", thinkingMs = 0 }) {
  return (
    [thinking, figures, model].every(isText) &&
    Number.isFinite(thinkingMs) &&
    (seed === null || Number.isInteger(seed)) &&
    [runs, thinkingRuns].every((given) => isEvery(given, isRun))
  );
}

const isEvery = (given, isOne) => Array.isArray(given) && given.every(isOne);

const isRun = (run) =>
  Array.isArray(run) && (run[0] === null || isText(run[0])) && Number.isInteger(run[1]) && run[1] > 0;
