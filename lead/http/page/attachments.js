// The images that will be sent with the next question, shown above its text field.

import { button, byId, make } from "./dom.js";
import { MAX_IMAGES, isImage, readImage } from "./images.js";

export class Attachments {
  #images = [];
  #model = null; // its record, as the lead describes it
  /** A promise that settles when all added images have been read. */
  read = Promise.resolve();

  /** `onTrouble(sentence)` is called if a file cannot be attached. */
  constructor(onTrouble) {
    this.onTrouble = onTrouble;
    byId("attach").addEventListener("click", () => byId("image-file").click());
    byId("image-file").addEventListener("change", ({ target }) => {
      this.add([...target.files]);
      target.value = ""; // the same file may be chosen again
    });
  }

  get isEmpty() {
    return !this.#images.length;
  }

  /** Set the model that the next question goes to; null: not known. */
  isFor(model) {
    this.#model = model;
    byId("attach").hidden = !this.#sees;
  }

  /** Attach image files. */
  add(files) {
    this.onTrouble("");
    if (!this.#sees) {
      this.onTrouble(`${this.#model?.id ?? "The model"} cannot read images.`);
      return;
    }
    this.read = this.read.then(() => this.#add(files));
  }

  /** Return all images, and remove them from the question. */
  take() {
    const images = this.#images;
    this.#images = [];
    this.#paint();
    return images;
  }

  get #sees() {
    return this.#model?.architecture?.input_modalities?.includes("image") ?? false;
  }

  async #add(files) {
    for (const file of files) {
      if (this.#images.length === MAX_IMAGES) {
        this.onTrouble(`A question can have at most ${MAX_IMAGES} images.`);
        break;
      }
      try {
        if (!isImage(file)) throw new TypeError(file.type);
        this.#images.push(await readImage(file));
      } catch {
        this.onTrouble(`This browser cannot read ${file.name} as an image.`);
      }
    }
    this.#paint();
    byId("question").focus();
  }

  #paint() {
    byId("attached").replaceChildren(...this.#images.map((image) => this.#row(image)));
  }

  #row(image) {
    const remove = () => {
      this.#images = this.#images.filter((other) => other !== image);
      this.#paint();
      byId("question").focus();
    };
    const cross = button("×", remove, { ariaLabel: `Remove ${image.name}`, title: "remove" });
    return make("li", {}, make("img", { src: image.url, alt: image.name }), cross);
  }
}
