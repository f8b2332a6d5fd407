"""What computing takes beside the compute buffers, whose sizes llama.cpp logs.

That is the CPU's work buffer and the graphs. Without flash attention the work buffer holds the attention
scores of a whole batch in the type of the KV cache: batch · cells · heads · 2 bytes. The functions that tell
are exported, but llama_cpp does not bind them: `llama_graph_reserve` (llama-ext.h), `ggml_graph_plan`
(ggml-cpu.h) and three of ggml.h.
"""

import ctypes
from typing import Any

import llama_cpp

from shared.llama import devices

_N_GRAPHS = 3
"""That a llama_context keeps: the reserved one, and the last ones with and without outputs."""
_RESERVE = (
    "_Z19llama_graph_reserveP13llama_contextjjj",
    "?llama_graph_reserve@@YAPEAUggml_cgraph@@PEAUllama_context@@III@Z",
)
"""The C++ name as GCC and Clang write it, and as MSVC does."""
_POINTER = ctypes.c_void_p


class _Plan(ctypes.Structure):
    """`ggml_cplan`."""

    _fields_ = (
        ("work_size", ctypes.c_size_t),
        ("work_data", _POINTER),
        ("n_threads", ctypes.c_int),
        ("threadpool", _POINTER),
        ("abort_callback", _POINTER),
        ("abort_callback_data", _POINTER),
        ("use_ref", ctypes.c_bool),
    )


def graph_bytes(context: Any, parameters: Any) -> int:
    """Of a new llama_context with these llama_context_params; 0 if this build does not tell.

    llama.cpp prepares the largest graph again for it, as when it made the context. 0 also beside a GPU,
    which computes large batches whether it holds the weights or not.
    """
    if devices.has_gpu():
        return 0
    try:
        graph = _largest_graph(context, parameters)
        return _work_bytes(graph, parameters) + _N_GRAPHS * _metadata_bytes(graph) if graph else 0
    except AttributeError:  # the CPU's library is loaded at run time, or the build exports less
        return 0


def _largest_graph(context: Any, parameters: Any) -> int | None:
    """The ggml_cgraph of the largest batch over a full cache; None: there is no memory for its buffer."""
    n_seqs = parameters.n_seq_max
    n_tokens = min(parameters.n_ctx, parameters.n_ubatch)
    reserve = _function(_RESERVE, [_POINTER, *[ctypes.c_uint32] * 3], _POINTER)
    graph: int | None = reserve(context, n_tokens, n_seqs, n_seqs)
    return graph


def _work_bytes(graph: int, parameters: Any) -> int:
    plan = _function(("ggml_graph_plan",), [_POINTER, ctypes.c_int, _POINTER], _Plan)
    n_bytes: int = plan(graph, max(1, parameters.n_threads_batch), None).work_size
    return n_bytes


def _metadata_bytes(graph: int) -> int:
    """Of a graph's nodes, for as many as it may have."""
    n_nodes = _function(("ggml_graph_size",), [_POINTER], ctypes.c_int)(graph)
    overhead = _function(("ggml_graph_overhead_custom",), [ctypes.c_size_t, ctypes.c_bool], ctypes.c_size_t)
    n_each = _function(("ggml_tensor_overhead",), [], ctypes.c_size_t)()
    n_bytes: int = n_each * n_nodes + overhead(n_nodes, False)
    return n_bytes


def _function(symbols: tuple[str, ...], arguments: list[Any], result: Any) -> Any:
    """The first of these that is exported; raises AttributeError."""
    library = llama_cpp.llama_cpp._lib  # noqa: SLF001 - there is no public way to these symbols
    symbol = next((symbol for symbol in symbols if hasattr(library, symbol)), symbols[0])
    function = library[symbol]  # a new object: llama_cpp's own is not changed
    function.argtypes, function.restype = arguments, result
    return function
