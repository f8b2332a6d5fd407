// Exchanges a code in the page's address for a key, once. `lead invite --chat` prints such addresses.

import { join, key } from "./api.js";

const SIGN = "#join=";

export const hasCode = () => location.hash.startsWith(SIGN);

/** Remove the code from the address, and exchange it for a key. Returns the reason if there is no key; else empty. */
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
