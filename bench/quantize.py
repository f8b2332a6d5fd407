"""Writing a GGUF model with its weights in another type."""

from pathlib import Path

import llama_cpp

from shared.cached_files import written_whole
from shared.errors import ModelLoadError
from shared.llama import library


def quantize(source: Path, path: Path, weights: str) -> None:
    """Write `source` to `path`; `weights` is a file type of llama.cpp: f32, bf16, q8_0, q4_k_m, …

    Raises ModelLoadError.
    """
    library.start()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = _file_type(weights)
    parameters.nthread = 1
    with written_whole(path) as part:
        if code := llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), parameters):
            raise ModelLoadError(f"{source} cannot be written as {weights}: llama.cpp says {code}")


def _file_type(weights: str) -> int:
    """A value of llama_ftype."""
    name = "ALL_F32" if weights == "f32" else f"MOSTLY_{weights.upper()}"
    found = getattr(llama_cpp, f"LLAMA_FTYPE_{name}", None)
    if found is None:
        raise ModelLoadError(f"{weights!r} is not a type of weights that llama.cpp writes")
    return int(found)
