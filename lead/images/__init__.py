"""Images (`--mmproj`): a process turns each into rows of embeddings, which the engine decodes.

Image files are hostile input to native code, so that process has neither the model's weights nor anybody's
text, and may be killed. `image_encoder_process` runs there, with the projector (`projector`). `image_encoder`
is the front's side. Embeddings reach the engine through `image_memory`; `shared.image_span` has the types
that both sides of a `Submit` share.
"""
