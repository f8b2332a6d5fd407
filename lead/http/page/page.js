// The page: brings the parts together and asks the lead how it is.

import * as lead from "./api.js";
import { Conversation } from "./conversation.js";
import { byId, tell } from "./dom.js";
import { Invitations } from "./invitations.js";
import { KeyDialog } from "./key_dialog.js";
import { Panels } from "./panels.js";
import { Legend } from "./sources.js";
import { Switch } from "./switch.js";
import { Transcript } from "./transcript.js";

const POLL_MS = 1000;
const NO_KEY = 401;
const FORBIDDEN = 403;
const LOADING = 503;

const panels = new Panels();
const invitations = new Invitations();
const speculation = new Switch();
const conversation = new Conversation(new Transcript(byId("transcript"), new Legend(byId("legend"))));
const keyDialog = new KeyDialog(() => {
  speculation.forget();
  poll();
});
const question = byId("question");

// --- asking

async function run(asking) {
  showButtons();
  tell(byId("announcement"), "");
  tell(byId("announcement"), await asking);
  showButtons();
}

function send() {
  const text = question.value.trim();
  if (!text || conversation.isRunning) return;
  question.value = "";
  run(conversation.ask(text, speculation.speculates));
}

function showButtons() {
  const { isRunning, hasQuestion } = conversation;
  const hadFocus = document.activeElement;
  byId("stop").hidden = !isRunning;
  byId("send").hidden = isRunning;
  byId("again").hidden = isRunning || !hasQuestion;
  if (hadFocus?.hidden) question.focus();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") conversation.stop();
});
byId("stop").addEventListener("click", () => conversation.stop());
byId("again").addEventListener("click", () => run(conversation.askAgain(speculation.speculates)));
byId("clear").addEventListener("click", () => {
  conversation.clear();
  showButtons();
  question.focus();
});

// --- looking

let timer = null;
let asked = 0;
let knowsModel = false;

async function poll() {
  clearTimeout(timer);
  const number = ++asked;
  try {
    if (!knowsModel) {
      tell(byId("model"), (await lead.models()).data[0].id);
      await invitations.look();
    }
    knowsModel = true;
    const told = await lead.speculation();
    if (number !== asked) return; // another key has been tried meanwhile
    byId("figures").classList.remove("stale");
    panels.show(told, performance.now());
    speculation.show(told.planner);
    tell(byId("promise"), told.lead.promise ? `Texts: ${told.lead.promise}.` : "");
    tell(byId("devices"), told.lead.devices ? `Devices: ${told.lead.devices}.` : "");
    showState("good", "ready");
  } catch (error) {
    if (number !== asked) return;
    panels.pause();
    byId("figures").classList.add("stale");
    knowsModel = false; // the next lead at this address may have another one
    explain(error);
  }
  if (!document.hidden && !keyDialog.dialog.open) timer = setTimeout(poll, POLL_MS);
}

function explain(error) {
  if (!(error instanceof lead.LeadError)) showState("bad", "the lead is away, trying again");
  else if (error.status === LOADING) showState("wait", "loading the model");
  else if (error.status === NO_KEY || error.status === FORBIDDEN) {
    showState("wait", "a key is needed");
    keyDialog.open(lead.key.get() === null ? "" : `This key does not work: ${error.message}.`);
  } else showState("bad", error.message);
}

function showState(state, words) {
  byId("state").dataset.state = state;
  tell(byId("state"), words);
}

document.addEventListener("visibilitychange", () => {
  panels.pause();
  if (!document.hidden) poll();
});

poll();
question.focus();
