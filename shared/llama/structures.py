"""Checks that llama.cpp's structures have the layout of llama_cpp's classes.

If another version of the library inserts a field, later fields shift although no function changes its name,
and options silently get wrong values.
"""

import ctypes
from types import ModuleType
from typing import Any

from shared.errors import LibraryError

_ROOM = 256
"""The number of spare bytes behind a structure: a library with a longer structure writes into them."""
_NONE_CHOSEN = -1

_DEFAULTS: dict[str, dict[str, float]] = {
    "llama_context_params": {
        **dict.fromkeys(("rope_scaling_type", "pooling_type", "attention_type"), _NONE_CHOSEN),
        **dict.fromkeys(("flash_attn_type", "yarn_ext_factor", "yarn_attn_factor"), _NONE_CHOSEN),
        **dict.fromkeys(("yarn_beta_fast", "yarn_beta_slow"), _NONE_CHOSEN),
        **dict.fromkeys(("type_k", "type_v"), 1),  # GGML_TYPE_F16
        "embeddings": False,
        "offload_kqv": True,
        "no_perf": True,
        "op_offload": True,
        "swa_full": True,
        "kv_unified": False,
        "n_samplers": 0,
    },
    "llama_model_params": {
        "split_mode": 1,  # LLAMA_SPLIT_MODE_LAYER
        "load_mode": _NONE_CHOSEN,
        "main_gpu": 0,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": True,
        "no_host": False,
        "no_alloc": False,
        "load_mtp": False,
    },
}
"""Defaults in llama.cpp's structures, chosen because a shifted field would hardly have the same value."""


def check_structures(functions: ModuleType) -> None:
    """Compare the library's defaults with the known ones; raises LibraryError.

    functions: llama_cpp's module of functions, which has the loaded library as `_lib`. A field appended at
    the end is not noticed.
    """
    library = functions._lib._name  # noqa: SLF001 - ctypes has no other name for it
    for name, defaults in _DEFAULTS.items():
        found = _defaults(functions, name)
        for field, expected in defaults.items():
            if (value := getattr(found, field, None)) != expected:
                raise LibraryError(
                    f"{library} does not match the version of the installed llama-cpp-python: "
                    f"{field} of its {name} is {value}, not {expected}. Unset LLAMA_CPP_LIB_PATH, "
                    "or install llama-cpp-python again"
                )


def _defaults(functions: ModuleType, name: str) -> Any:
    structure = getattr(functions, name)

    class WithRoom(ctypes.Structure):
        _fields_ = (("known", structure), ("room", ctypes.c_uint8 * _ROOM))

    default = functions._lib[name.replace("_params", "_default_params")]  # noqa: SLF001 - as above; a new object
    default.restype = WithRoom
    return default().known
