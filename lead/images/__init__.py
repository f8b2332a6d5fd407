"""Images (`--mmproj`): a process turns each image into rows of embeddings, which the engine decodes.

Image files are hostile input to native code. Therefore the process has neither the model's weights nor
clients' texts, and may be killed. `image_encoder_process` runs in it, with the projector (`projector`).
`image_encoder` is the front's side. Embeddings reach the engine through `image_memory`. `shared.image_span`
has the types on both sides of a `Submit`.
"""
