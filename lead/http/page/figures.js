// Numbers as people read them.

/** Tokens per second. */
export const speed = (rate) => (rate >= 100 ? rate.toFixed(0) : rate.toFixed(1));

/** A part of a whole in percent; a dash if the whole is 0. */
export const share = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–");

export const milliseconds = (ms) => (ms >= 100 ? `${ms.toFixed(0)} ms` : `${ms.toPrecision(2)} ms`);

export const seconds = (ms) => (ms < 59_500 ? `${Math.max(1, Math.round(ms / 1000))} s` : `${Math.round(ms / 60_000)} min`);

export const count = (n) => n.toLocaleString("en");
