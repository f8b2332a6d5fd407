// The page: connects its parts, and polls the lead's state.

import * as lead from "./api.js";
import { Attachments } from "./attachments.js";
import { Conversation } from "./conversation.js";
import { ConversationList } from "./conversation_list.js";
import { byId, tell } from "./dom.js";
import { takeFiles } from "./drop.js";
import { Invitations } from "./invitations.js";
import { hasCode, useCode } from "./joining.js";
import { KeyDialog } from "./key_dialog.js";
import { ModelPicker } from "./model_picker.js";
import { Panels } from "./panels.js";
import { SettingsDialog } from "./settings_dialog.js";
import { Legend } from "./sources.js";
import { Store } from "./store.js";
import { Switch } from "./switch.js";
import { followTheme } from "./theme.js";
import { Transcript } from "./transcript.js";
import { Views } from "./views.js";

const POLL_MS = 1000;
const LOOK_AGAIN = 5; // polls between two requests for the list of models, while the chosen model is loaded
const NO_KEY = 401;
const FORBIDDEN = 403;
const LOADING = 503;

const panels = new Panels();
const invitations = new Invitations();
const speculation = new Switch();
const question = byId("question");
const store = new Store();
const transcript = new Transcript(byId("transcript"), new Legend(byId("legend")), {
  edit: (message, text) => run(() => conversation.edit(message, text, speculation.speculates)),
  rewrite: (answer, text) => conversation.rewrite(answer, text),
  again: (id, seed) => run(() => conversation.again(id, seed, speculation.speculates)),
  resume: (answer) => run(() => conversation.resume(answer, speculation.speculates)),
  choose: (message) => conversation.choose(message),
});
const conversation = new Conversation(transcript, store, showTrouble);
const list = new ConversationList(store, {
  onOpen: open,
  onDelete: (id) => id === conversation.id && begin(),
});
const keyDialog = new KeyDialog(() => {
  speculation.forget();
  poll();
});
const attachments = new Attachments(showTrouble);
const picker = new ModelPicker((model) => {
  conversation.setSettings({ model });
  attachments.isFor(picker.chosen);
});
const views = new Views();
new SettingsDialog(conversation);
followTheme();

// --- asking

async function run(asking) {
  if (conversation.isRunning) return;
  if (picker.name !== conversation.settings.model) conversation.setSettings({ model: picker.name });
  const asked = asking();
  showWhere();
  announce("");
  showTrouble("");
  list.look();
  const note = await asked;
  if (!conversation.isRunning) announce(note);
  showWhere();
  await list.look();
}

async function send() {
  await attachments.read;
  const text = question.value.trim();
  if ((!text && attachments.isEmpty) || conversation.isRunning) return;
  question.value = "";
  const images = attachments.take();
  run(() => conversation.ask(text, images, speculation.speculates));
}

function announce(words) {
  tell(byId("announcement"), words);
}

/** Show a message that is not part of the conversation; screen readers read it aloud. */
function showTrouble(words) {
  tell(byId("trouble"), words);
}

/** Show which conversation is open, and whether an answer is being generated. The address keeps the id over a reload. */
function showWhere() {
  const { isRunning, id } = conversation;
  const hadFocus = document.activeElement;
  byId("stop").hidden = !isRunning;
  byId("send").hidden = isRunning;
  document.body.classList.toggle("answering", isRunning);
  if (hadFocus?.hidden) question.focus();
  history.replaceState(null, "", id ? `#${id}` : location.pathname);
  list.mark(id);
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
question.addEventListener("keydown", (event) => {
  if (event.key === "ArrowUp" && !question.value && transcript.editLast()) event.preventDefault();
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") conversation.stop();
  if (!event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.code === "KeyN") begin();
  else if (event.code === "KeyS") views.search();
  else return;
  event.preventDefault();
});
byId("stop").addEventListener("click", () => conversation.stop());
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the conversation's
  question.focus();
});
byId("new").addEventListener("click", begin);
takeFiles(document.body, {
  onText: (text) => {
    question.value += `${question.value ? "\n" : ""}${text}`;
    question.focus();
  },
  onImages: (files) => attachments.add(files),
  onTrouble: showTrouble,
});

// --- conversations

function begin() {
  conversation.clear();
  prefer();
  views.showChat();
  showWhere();
  question.focus();
}

async function open(id) {
  if (await conversation.open(id)) {
    prefer();
    views.showChat();
  }
  showWhere();
}

/** Choose the model of the conversation that is open, if the lead has it. */
function prefer() {
  picker.want(conversation.settings.model);
  attachments.isFor(picker.chosen);
}

store.onOthers(async (id, isDeleted) => {
  if (id !== null && id === conversation.id) await (isDeleted ? begin() : conversation.refresh());
  await list.look();
});

// --- looking

let timer = null;
let asked = 0;
let knowsLead = false;
let whyNoKey = "";

async function poll() {
  clearTimeout(timer);
  const number = ++asked;
  try {
    if (!knowsLead || !picker.isLoaded || (picker.name && number % LOOK_AGAIN === 0)) {
      const { data } = await lead.models();
      if (number !== asked) return;
      picker.offer(data);
      attachments.isFor(picker.chosen);
    }
    if (!knowsLead) await invitations.look();
    knowsLead = true;
    if (!picker.isLoaded) {
      panels.pause();
      byId("figures").classList.add("stale");
      showState("wait", picker.state);
      return;
    }
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
    knowsLead = false; // the next one at this address may have another model
    explain(error);
  } finally {
    if (number === asked && !document.hidden && !keyDialog.dialog.open) timer = setTimeout(poll, POLL_MS);
  }
}

function explain(error) {
  if (!(error instanceof lead.LeadError)) showState("bad", "the lead does not answer, trying again");
  else if (error.status === LOADING) showState("wait", "loading the model");
  else if (error.status === NO_KEY || error.status === FORBIDDEN) {
    showState("wait", "the lead needs a key");
    keyDialog.open(lead.key.get() === null ? whyNoKey : `This key does not work: ${error.message}.`);
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

// Opening an address with another code in this tab does not reload the page.
window.addEventListener("hashchange", async () => {
  if (!hasCode()) return;
  whyNoKey = await useCode();
  keyDialog.showButton();
  keyDialog.dialog.close();
  poll();
});
if (hasCode()) {
  whyNoKey = await useCode();
  keyDialog.showButton();
}
const polled = poll();
question.focus();
if (location.hash.length > 1) await open(location.hash.slice(1));
document.body.classList.remove("opening");
await list.look();
await polled;
const { left } = conversation;
if (knowsLead && left) run(() => conversation.takeUp(left, speculation.speculates));
