"""The names of a GGUF file's tensors, without reading its weights."""

import os
from pathlib import Path

from shared.llama.gguf_functions import InitParameters, gguf_function


def tensor_names(path: Path) -> list[str]:
    """In the order of the file; empty if llama.cpp cannot read it. Of a split model, one part's."""
    file = gguf_function("gguf_init_from_file")(os.fsencode(path), InitParameters(True, None))
    if not file:
        return []
    name = gguf_function("gguf_get_tensor_name")
    n_tensors = gguf_function("gguf_get_n_tensors")(file)
    names = [name(file, i).decode("utf-8", "replace") for i in range(n_tensors)]
    gguf_function("gguf_free")(file)
    return names
