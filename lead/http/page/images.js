// Images of a question. They are scaled down and encoded again before they are stored or sent, because a photo's file
// may contain the place where it was taken.

import { button, make } from "./dom.js";
import { newId } from "./thread.js";

export const MAX_IMAGES = 8; // of one question
const MAX_SIDE = 1536; // pixels; models look at fewer
const MAX_LENGTH = 1 << 20; // characters of an image as a data: URL
const QUALITIES = [0.9, 0.75, 0.5]; // of a JPEG: the first one that is short enough
const DATA_URL = /^data:image\/(?:png|jpeg);base64,[A-Za-z0-9+/]+={0,2}$/;

/** Whether a file may be an image that browsers can draw; SVG counts as text. */
export const isImage = ({ type }) => type.startsWith("image/") && type !== "image/svg+xml";

/** Read a file as an image {id, name, url}; rejects if this browser cannot draw it. */
export async function readImage(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff"; // models see no transparency
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  return { id: newId(), name: file.name || "Image", url: encoded(canvas, file.type) };
}

/** The image as a data: URL; a PNG stays a PNG if it is small enough, so screenshots stay sharp. */
function encoded(canvas, type) {
  let url = type === "image/png" ? canvas.toDataURL() : "";
  for (const quality of QUALITIES) {
    if (url && url.length <= MAX_LENGTH) break;
    url = canvas.toDataURL("image/jpeg", quality);
  }
  return url;
}

/** Whether `it`, which was read from a file, is an image in the form that `readImage` returns. */
export const isReadImage = (it) =>
  [it?.id, it?.name, it?.url].every((value) => typeof value === "string") &&
  it.url.length <= 2 * MAX_LENGTH &&
  DATA_URL.test(it.url);

/** The `content` of a message, as the API takes it. */
export function contentOf({ content, images = [] }) {
  if (!images.length) return content;
  const text = content ? [{ type: "text", text: content }] : [];
  return [...images.map(({ url }) => ({ type: "image_url", image_url: { url } })), ...text];
}

/** Thumbnails; pressing one makes it large, or small again. */
export function thumbnails(images) {
  const one = ({ name, url }) => {
    const press = () => picture.setAttribute("aria-expanded", String(picture.getAttribute("aria-expanded") !== "true"));
    const picture = button("", press, { className: "picture", ariaExpanded: "false", title: "change the size" });
    picture.append(make("img", { src: url, alt: name }));
    return picture;
  };
  return make("div", { className: "pictures" }, ...images.map(one));
}
