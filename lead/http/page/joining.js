// A code in the address, as `lead invite --chat` shows it: exchanged for a key, once.

import { join, key } from "./api.js";

const SIGN = "#join=";

export const hasCode = () => location.hash.startsWith(SIGN);

/** Use the code in the address, which is taken out of it first. Returns why there is no key then, or nothing. */
export async function useCode() {
  const secret = location.hash.slice(SIGN.length);
  history.replaceState(null, "", location.pathname);
  try {
    key.keep((await join(secret, nameOfDevice())).key);
  } catch (error) {
    if (key.get() === null) return `This code does not work: ${error.message}.`;
  }
  return "";
}

function nameOfDevice() {
  const known = ["iPhone", "iPad", "Android", "Windows", "Macintosh", "Linux"];
  return `browser-${known.find((each) => navigator.userAgent.includes(each)) ?? "other"}`;
}
