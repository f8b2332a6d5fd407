// Requests to the lead. A key is never in an address, only in a header and in the browser's storage: sessionStorage for
// a key that a person typed, localStorage for a key that the page got with a code and that no person knows.

const KEY = "llama-duo.key";
const PATIENCE_MS = 10_000;

/** The lead answered with an error, or its answer is incomplete. */
export class LeadError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  /** Store the key for later visits, too. */
  keep: (value) => {
    sessionStorage.removeItem(KEY);
    localStorage.setItem(KEY, value);
  },
  forget: () => {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
  },
  /** Whether `value` can be a key: a header must be able to carry it. */
  isOne: (value) => /^[\x21-\x7e]+$/.test(value),
};

export const models = () => askJson("v1/models");
export const speculation = () => askJson("v1/speculation");
export const setPolicy = (policy, depth) =>
  askJson("v1/speculation", { method: "PUT", body: { policy, depth } });
export const members = () => askJson("v1/members");
export const invite = (role) =>
  askJson("v1/invitations", { method: "POST", body: { role, open: true } });
/** Make a key for a program; returns it with the addresses where it is valid. */
export const addApp = () => askJson("v1/members", { method: "POST", body: { name: "app", open: true } });
/** Exchange the secret of a code for a key. */
export const join = (secret, name) => askJson("v1/join", { method: "POST", body: { secret, name } });
/** Close the lead to all invited machines. */
export const closeDoor = () => askJson("v1/invitations", { method: "DELETE" });
export const revoke = (name) => askJson(`v1/members?name=${encodeURIComponent(name)}`, { method: "DELETE" });

/** The events of a streamed answer; an error event is thrown. */
export async function* chat(body, signal) {
  const response = await ask("v1/chat/completions", { method: "POST", body, signal });
  for await (const line of lines(response.body)) {
    if (!line.startsWith("data: ")) continue;
    const data = line.slice("data: ".length);
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new LeadError(response.status, event.error.message);
    yield event;
  }
  throw new LeadError(0, "the answer broke off");
}

async function askJson(path, options = {}) {
  const response = await ask(path, { ...options, signal: AbortSignal.timeout(PATIENCE_MS) });
  return response.json();
}

async function ask(path, { method = "GET", body, signal }) {
  const headers = {};
  const secret = key.get();
  if (secret) headers.Authorization = `Bearer ${secret}`;
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method,
    headers,
    signal,
    body: body && JSON.stringify(body),
    cache: "no-store",
  });
  if (!response.ok) throw new LeadError(response.status, await reasonOf(response));
  return response;
}

async function reasonOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the lead answered with status ${response.status}`;
  }
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
