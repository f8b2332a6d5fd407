"""Open a GGUF file with llama-cpp-python for exact comparisons."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import Llama
from llama_cpp import llama_cpp as low


def open_model(path: Path, n_ctx: int = 2048, n_threads: int = 1) -> Llama:
    """A model that keeps all logits.

    Weights are not repacked for special instructions (use_extra_bufts off): that keeps the results the same
    from machine to machine, and one build crashed with AMX repacking on.
    """
    with _unpacked_weights():
        return Llama(
            str(path),
            n_ctx=n_ctx,
            n_threads=n_threads,
            n_threads_batch=n_threads,
            logits_all=True,
            verbose=False,
        )


@contextmanager
def _unpacked_weights() -> Iterator[None]:
    """Llama has no argument for the setting, so its defaults are changed while it loads."""
    modules: tuple[Any, ...] = (low, llama_cpp)
    default = low.llama_model_default_params

    def plain() -> low.llama_model_params:
        params: low.llama_model_params = default()
        params.use_extra_bufts = False
        return params

    for module in modules:
        module.llama_model_default_params = plain
    try:
        yield
    finally:
        for module in modules:
            module.llama_model_default_params = default
