"""The memory of a context, from llama.cpp's log and from its largest graph."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared.llama.placement import CPU
from shared.llama.unbound import function
from shared.terminal import size_text

_MIB = 1 << 20
_N_GRAPHS = 3
"""The number of graphs that a llama_context keeps: the reserved graph, and the last graphs with and without
outputs.
"""
_CREATING = re.compile(r"creating +(.*) KV cache")
_ATTENTION = re.compile(r"llama_kv_cache: size = +([\d.]+) MiB")
_STATES = re.compile(r"llama_memory_recurrent: size = +([\d.]+) MiB \( *(\d+) cells.* (\d+) rs_seq\)")
_COMPUTING = re.compile(r": +(\S+) +compute buffer size = +([\d.]+) MiB")
_LAYER = re.compile(r"(llama_kv_cache|llama_memory_recurrent)\w*[:,] layer +(\d+): dev = ")


@dataclass(frozen=True, slots=True)
class MemorySize:
    """The memory of a context, in bytes.

    n_states: the number of recurrent states. layers: the layers that share `full_attention`, `windows` and
    `states` equally. buffers: the parts of `computing`, by the name of the buffer.
    """

    full_attention: int = 0
    windows: int = 0
    states: int = 0
    n_states: int = 0
    computing: int = 0
    layers: tuple[tuple[int, ...], ...] = ((), (), ())
    buffers: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.full_attention + self.windows + self.states + self.computing

    def with_graphs(self, n_bytes: int) -> "MemorySize":
        """Return a copy with `n_bytes` more for computing."""
        return replace(self, computing=self.computing + n_bytes)

    def caches(self, n_layers: int) -> list[int]:
        """Return the bytes of each layer's caches (keys, values, states)."""
        found = [0] * n_layers
        for n_bytes, layers in zip(
            (self.full_attention, self.windows, self.states), self.layers, strict=True
        ):
            for layer in layers:
                found[layer] += n_bytes // len(layers)
        return found

    def computing_by(self, devices: Mapping[str, str]) -> dict[str, int]:
        """Return the parts of `computing` by device or CPU; `devices`: device names by buffer names."""
        found = {CPU: self.computing}
        for buffer, device in devices.items():
            found[device] = self.buffers.get(buffer, 0)
            found[CPU] -= found[device]
        return found

    def __str__(self) -> str:
        """Return the sizes as text for the log."""
        parts = [f"{size_text(self.full_attention)} for keys and values"]
        if self.windows:
            parts.append(f"{size_text(self.windows)} for keys and values of sliding windows")
        if self.states:
            each = size_text(self.states / self.n_states)
            parts.append(f"{size_text(self.states)} for {self.n_states} recurrent states of {each}")
        if self.computing:  # it was measured
            parts.append(f"{size_text(self.computing)} for intermediate results")
        return ", ".join(parts)


def read_sizes(lines: Iterable[str]) -> MemorySize:
    """Parse the size of a context from llama.cpp's log of its creation."""
    is_window = False
    full = windows = states = 0.0
    n_states = 0
    layers: tuple[list[int], ...] = ([], [], [])
    buffers: dict[str, int] = {}
    for line in lines:
        if match := _CREATING.search(line):
            is_window = match[1] == "SWA"
        elif match := _LAYER.search(line):
            layers[2 if match[1] == "llama_memory_recurrent" else int(is_window)].append(int(match[2]))
        elif match := _ATTENTION.search(line):
            full += 0 if is_window else float(match[1])
            windows += float(match[1]) if is_window else 0
        elif match := _STATES.search(line):
            states += float(match[1])
            n_states = int(match[2]) * (1 + int(match[3]))
        elif match := _COMPUTING.search(line):
            buffers[match[1]] = buffers.get(match[1], 0) + round(float(match[2]) * _MIB)
    return MemorySize(
        full_attention=round(full * _MIB),
        windows=round(windows * _MIB),
        states=round(states * _MIB),
        n_states=n_states,
        computing=sum(buffers.values()),
        layers=tuple(map(tuple, layers)),
        buffers=buffers,
    )


def graph_bytes(context: Any, parameters: Any) -> int:
    """Return the bytes for computing that are not in the compute buffers: the CPU's work buffer, and the
    graphs.

    Without flash attention, the work buffer holds the attention scores of a whole batch in the type of the KV
    cache: batch · cells · heads · 2 bytes. `context` must be new, and made with these llama_context_params,
    because llama.cpp prepares its largest graph again. Returns 0 if this build does not report these bytes.
    """
    try:
        graph = _largest_graph(context, parameters)
        return _work_bytes(graph, parameters) + _N_GRAPHS * _metadata_bytes(graph) if graph else 0
    except AttributeError:  # the CPU's library is loaded at run time, or the build exports less
        return 0


def _largest_graph(context: Any, parameters: Any) -> int | None:
    """Return the ggml_cgraph of the largest batch over a full cache; None: there is no memory for
    its buffer.
    """
    n_seqs = parameters.n_seq_max
    n_tokens = min(parameters.n_ctx, parameters.n_ubatch)
    graph: int | None = function("llama_graph_reserve")(context, n_tokens, n_seqs, n_seqs)
    return graph


def _work_bytes(graph: int, parameters: Any) -> int:
    n_threads = max(1, parameters.n_threads_batch)
    n_bytes: int = function("ggml_graph_plan")(graph, n_threads, None).work_size
    return n_bytes


def _metadata_bytes(graph: int) -> int:
    """Return the number of bytes that the nodes of a graph take when it has the maximum number of nodes."""
    n_nodes = function("ggml_graph_size")(graph)
    n_each = function("ggml_tensor_overhead")()
    n_bytes: int = n_each * n_nodes + function("ggml_graph_overhead_custom")(n_nodes, False)
    return n_bytes
