"""Measures whether flash attention makes steps on this CPU faster, with a model that has only attention.

llama.cpp fixes the choice when it creates a context. On a CPU flash attention saves operations, and skips the
cells of other texts. But it computes each token of a step separately, so draft tokens after a long text cost
more. Which effect is larger depends on the heads, the threads and the CPU.

The stand-in model has the real model's heads in two layers, and almost nothing else. So filling its cache
takes a few hundredths of a second, however large the real model is.
"""

import ctypes
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from pydantic import BaseModel

from shared import cpus
from shared.cached_files import CacheFolder
from shared.errors import MissingFunctionError, ModelLoadError
from shared.llama import library
from shared.llama.batch import Batch
from shared.llama.gguf_metadata import integers
from shared.llama.native import llama_cpp
from shared.llama.native_parameters import context_parameters, is_offloaded
from shared.llama.remembered import Remembered
from shared.llama.span import Span, SpanPart
from shared.llama.start_key import StoredKind, start_key, state_of_files
from shared.llama.unbound import function
from shared.model_files.file_kind import read_beginning
from shared.settings.model_options import DEFAULT_SLOTS, UNQUANTIZED, ModelOptions

log = logging.getLogger("llama")

_VERSION = 1
"""Raise this when the measurement changes."""
_LENGTHS = (256, 1024)
"""The numbers of tokens in a text before the step."""
_SHORT_OTHERS = 256
"""The number of tokens in each other text in the pool."""
_WIDTHS = {1: 1.0, 4: 2.5}
"""Numbers of tokens in a step, each with the approximate number that the step commits."""
_TIE = 1.05
"""Two measurements of the same time may differ by this factor."""
_N_TIMED = 8
_MAX_SECONDS = 3.0
"""The time limit for all measurements, which take .2 to .5 s on an idle machine. Beside programs that compute
on all cores, threads wait for each other many times longer, and the results are random."""
_LATENT = "attention.kv_lora_rank"
"""The metadata key of models with multi-head latent attention."""
_N_LAYERS, _N_VOCAB, _WIDTH, _N_BATCH = 2, 64, 64, 256


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The shape of a layer's attention; the lengths are per head."""

    n_heads: int
    n_kv_heads: int
    key_length: int
    value_length: int
    n_window: int

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Return the shape of a model's attention. None if layers differ or have another kind of attention,
        because llama.cpp aborts on a wrong shape.
        """
        prefix = read_beginning(path).get("general.architecture", "")
        found = {key.removeprefix(f"{prefix}."): value for key, value in integers(path, f"{prefix}.").items()}
        n_heads, n_embd = found.get("attention.head_count", 0), found.get("embedding_length", 0)
        n_kv_heads = found.get("attention.head_count_kv", n_heads)
        if not n_embd or not n_kv_heads or n_heads % n_kv_heads or _LATENT in found:
            return None
        length = n_embd // n_heads
        key_length = found.get("attention.key_length", length)
        value_length = found.get("attention.value_length", length)
        if key_length % 2 or not value_length:  # positions rotate pairs
            return None
        return cls(n_heads, n_kv_heads, key_length, value_length, found.get("attention.sliding_window", 0))


class AttentionTimes(BaseModel, frozen=True):
    """Mean seconds that the attention of some layers takes for a token, with and without flash attention."""

    without_flash: float
    with_flash: float

    @property
    def prefer_flash(self) -> bool:
        """True if flash attention is faster or equal; if equal it is preferred, as it takes less memory."""
        return self.with_flash < _TIE * self.without_flash


def choose_flash_attention(path: Path, options: ModelOptions, n_threads: int) -> ModelOptions:
    """Return `options` with --flash-attn auto replaced by on or off, as measured on the CPU. Other options,
    and options for a GPU, are returned unchanged.

    The measurement is cached, so that later starts make the same choice.
    """
    is_open = options.flash_attn == "auto" and options.cache_type_v in UNQUANTIZED
    if not is_open or options.parallel > DEFAULT_SLOTS or is_offloaded(options):
        return options
    tried = options.model_copy(update={"threads": n_threads, "threads_batch": 0})
    files = state_of_files(path, options)
    key = start_key(StoredKind.ATTENTION, files, tried, version=_VERSION, cores=sorted(cpus.usable()))
    stored = Remembered(CacheFolder.ATTENTION, AttentionTimes, key)
    times = stored.recall()
    if times is None:
        n_others = options.parallel - 1 if options.kv_unified else 0
        shape = AttentionShape.of(path)
        times = measure(shape, tried, n_others) if shape else None
        if times is None:
            return options
        stored.keep(times)
    log.debug(
        "flash attention %s: %.0f µs per token in %d layers with it, %.0f µs without it",
        "on" if times.prefer_flash else "off",
        1e6 * times.with_flash,
        _N_LAYERS,
        1e6 * times.without_flash,
    )
    return options.model_copy(update={"flash_attn": "on" if times.prefer_flash else "off"})


def measure(shape: AttentionShape, options: ModelOptions, n_others: int) -> AttentionTimes | None:
    """Measure attention for a text alone, and beside `n_others` other texts in one pool.

    None: this llama.cpp cannot make the model, or measuring takes too long.
    """
    library.start()
    end = time.perf_counter() + _MAX_SECONDS
    lengths = sorted({min(length, shape.n_window or length) for length in _LENGTHS})
    try:
        with _stand_in(shape, max(lengths) + _N_BATCH) as model:
            times = [
                seconds
                for beside in sorted({0, n_others * _SHORT_OTHERS})
                for seconds in _times(model, options, lengths, beside, end)
            ]
    except (MissingFunctionError, ModelLoadError):
        return None
    except _BusyError:
        log.info(
            "flash attention was not measured because other programs use the CPU. The next start measures it"
        )
        return None
    without, with_flash = (sum(each) / len(each) for each in zip(*times, strict=True))
    return AttentionTimes(without_flash=without, with_flash=with_flash)


def _times(
    model: Any, options: ModelOptions, lengths: Sequence[int], n_beside: int, end: float
) -> Iterator[tuple[float, float]]:
    """Yield the seconds for a committed token without and with flash attention, for each length and width."""
    with ExitStack() as stack:
        contexts = []
        for kind in ("off", "on"):
            chosen = options.model_copy(update={"flash_attn": kind, "parallel": 2, "kv_unified": True})
            parameters = context_parameters(chosen, max(lengths) + n_beside + _N_BATCH, 2)
            parameters.n_batch = parameters.n_ubatch = _N_BATCH
            contexts.append(stack.enter_context(_Trial.opened(model, parameters, end)))
        for context in contexts:
            context.fill(1, 0, n_beside)
        for start, length in zip([0, *lengths], lengths, strict=False):
            for context in contexts:
                context.fill(0, start, length)
            for width, n_committed in _WIDTHS.items():
                turns = [tuple(each.seconds(length, width) for each in contexts) for _ in range(_N_TIMED)]
                without, with_flash = (median(each) / n_committed for each in zip(*turns, strict=True))
                yield without, with_flash


class _BusyError(Exception):
    """Measuring takes too long."""


class _Trial:
    """A context of the stand-in model, with room for two texts."""

    def __init__(self, native: Any, end: float) -> None:
        self._native = native
        self._end = end
        self._memory = llama_cpp.llama_get_memory(native)
        self._batch = Batch(_N_BATCH)

    @classmethod
    @contextmanager
    def opened(cls, model: Any, parameters: Any, end: float) -> Iterator[Self]:
        """Yield a context of a stand-in model.

        Its decodes raise _BusyError after `end`, a time of `time.perf_counter`.
        """
        with library.captured_log():
            native = llama_cpp.llama_init_from_model(model, parameters)
        if not native:
            raise ModelLoadError("cannot create a context to measure attention")
        try:
            yield cls(native, end)
        finally:
            llama_cpp.llama_free(native)

    def fill(self, slot: int, start: int, end: int) -> None:
        """Decode tokens at positions `start` to `end` of a text."""
        for at in range(start, end, _N_BATCH):
            self._decode(slot, at, min(_N_BATCH, end - at))

    def seconds(self, start: int, n_tokens: int) -> float:
        """Return the seconds of a step of the first text, which is left as it was."""
        began = time.perf_counter()
        self._decode(0, start, n_tokens)
        seconds = time.perf_counter() - began
        llama_cpp.llama_memory_seq_rm(self._memory, 0, start, -1)
        return seconds

    def _decode(self, slot: int, start: int, n_tokens: int) -> None:
        if time.perf_counter() > self._end:
            raise _BusyError
        self._batch.fill([SpanPart(0, Span(slot, start, [1] * n_tokens, 1))], _N_VOCAB, 2)
        llama_cpp.llama_decode(self._native, self._batch.native)


@contextmanager
def _stand_in(shape: AttentionShape, n_ctx: int) -> Iterator[Any]:
    """Yield a llama_model whose weights are zero; raises MissingFunctionError, ModelLoadError."""
    keys = {
        "vocab_size": _N_VOCAB,
        "context_length": n_ctx,
        "embedding_length": _WIDTH,
        "feed_forward_length": _WIDTH,
        "block_count": _N_LAYERS,
        "attention.head_count": shape.n_heads,
        "attention.head_count_kv": shape.n_kv_heads,
        "attention.key_length": shape.key_length,
        "attention.value_length": shape.value_length,
        "rope.dimension_count": shape.key_length,
    }
    metadata = function("gguf_init_empty")()
    function("gguf_set_val_str")(metadata, b"general.architecture", b"llama")
    function("gguf_set_val_str")(metadata, b"tokenizer.ggml.model", b"no_vocab")
    function("gguf_set_val_f32")(metadata, b"llama.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in keys.items():
        function("gguf_set_val_u32")(metadata, f"llama.{key}".encode(), value)
    # llama.cpp makes the tensors, and asks for their content
    n_bytes, write = function("ggml_nbytes"), function("ggml_backend_tensor_memset")

    def clear(tensor: int, _: int) -> None:
        write(tensor, 0, 0, n_bytes(tensor))

    fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(clear)
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    with library.captured_log():
        model = llama_cpp.llama_model_init_from_user(metadata, fill, None, parameters)
    function("gguf_free")(metadata)
    if not model:
        raise ModelLoadError("cannot load a model to measure attention")
    try:
        yield model
    finally:
        llama_cpp.llama_model_free(model)
