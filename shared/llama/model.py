"""A loaded model with its KV cache.

`decode` computes the logits of several sequences in one batch. The other methods edit the memory as
`shared.cache_edits` describes; `traits` says how far it can be cut back. Not thread-safe.
"""

import ctypes
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shared.cache_edits import Snapshot
from shared.errors import DecodeAbortedError, DecodeFatalError, KvCacheFullError, ModelLoadError
from shared.image_span import ImageMemory
from shared.llama import devices, library
from shared.llama.abort_callback import ContextInterrupt, StepProgress
from shared.llama.batch import Batch
from shared.llama.batch_layout import BatchSizes, Layout, LayoutRules, layout
from shared.llama.cuda_graphs import NO_FLASH_ATTENTION, switch_off_if_wrong
from shared.llama.host_memory import HostMemory
from shared.llama.image_batch import ImageDecoder
from shared.llama.memory_plan import MemoryPlan
from shared.llama.memory_traits import PLAIN, SlotPart
from shared.llama.native import llama_cpp
from shared.llama.native_parameters import model_parameters
from shared.llama.placement import CACHE, Placement
from shared.llama.positions import Positions
from shared.llama.slot_parts import Padding, StepCheckpoints, WindowCheck, WindowGuard
from shared.llama.span import Pass, Rows, Span
from shared.llama.start_key import LoadedFacts, changed_meanwhile, state_of_files
from shared.llama.stored_states import StoredStates
from shared.llama.vocabulary import Vocabulary, load_native, unusable
from shared.rings import adapters
from shared.settings.model_options import UNQUANTIZED, ModelOptions
from shared.text_store import PromptCacheSize


class NativeModel(NamedTuple):
    """A llama_model and a llama_context."""

    model: Any
    context: Any


class Model:
    """Weights, vocabulary and a KV cache of `n_ctx` cells for `n_slots` sequences."""

    batch_sizes: BatchSizes | None = None
    """The batch sizes with which logits depend only on the tokens; None: all sizes are used."""

    facts: LoadedFacts
    """The loaded files, and the way in which they were loaded."""

    overlaps = False
    """True if the last step left this thread free most of the time between `launch` and the step's end.

    Always False on a CPU, where a long wait may only mean that other programs used the CPU.
    """

    def __init__(self, plan: MemoryPlan, images: ImageMemory | None = None) -> None:
        """Load the planned model; raises ModelLoadError. images: None: the model reads no images."""
        if plan.placement and plan.placement.problem:
            raise ModelLoadError(f"{plan.path}: {plan.placement.problem}")
        # The order matters: weights and context first, then the parts that share its memory, then sizes.
        self.plan = plan
        self.n_slots, self.traits = plan.context.n_slots, plan.context.traits
        parameters = plan.parameters
        uses_flash_attention = self._load(parameters)
        self._make_parts()
        self._measure(parameters)
        self._images = ImageDecoder(*self.native, images) if images else None
        n_ctx_of_rope = llama_cpp.llama_n_ctx_seq(self._context) if plan.has_long_rope else 0
        self.facts = LoadedFacts(plan.files, n_ctx_of_rope, uses_flash_attention)

    def _load(self, context_parameters: Any) -> bool:
        """Load the weights and adapters, and open a context; raises ModelLoadError.

        Returns whether the context uses flash attention.
        """
        path, parameters = self.plan.path, self.model_parameters()
        parameters.load_mtp = self.plan.with_heads
        self._model = load_native(path, parameters)
        self.vocabulary = Vocabulary(self._model, path)
        loaded = self._load_adapters()
        self._context, self._memory, uses_flash_attention = self._open_context(context_parameters)
        if loaded:
            adapters().apply_adapters(self._context, loaded, self.plan.options.lora)
        return uses_flash_attention

    def _make_parts(self) -> None:
        """Make the data that slots have beside their cells."""
        plan, context = self.plan, self.plan.context
        n_states = self.traits.n_step_checkpoints
        spare = self.n_slots * (1 + context.is_guarded) if plan.prompt_cache.n_part else None
        memory = HostMemory(_pinned(plan.placement), plan.prompt_cache.n_bytes)
        self._positions = positions = Positions(self.n_slots)
        self._stored = StoredStates(self._context, spare, memory, positions)  # in host memory
        self._padding = Padding()
        self._parts: list[SlotPart] = [positions, self._stored, self._padding]  # all that follow edits
        if context.is_guarded:
            n_window, position_of = context.n_window, positions.position_of
            self._parts.append(WindowGuard(self._memory, self.n_slots, n_window, position_of))
        self._windows = None  # the check, if windows may have lost cells
        if context.checks_windows:
            self._windows = WindowCheck(self._memory, context.n_window, positions.position_of)
        self._saved = StepCheckpoints(self._memory, self.n_slots, n_states) if n_states else None  # on device
        self._parts += [part for part in (self._windows, self._saved) if part]

    def _measure(self, context_parameters: Any) -> None:
        """Read the sizes of the loaded model, and create the batch for them."""
        self.n_vocab = self.vocabulary.n_tokens
        self.n_ctx: int = llama_cpp.llama_n_ctx(self._context)
        n_each: int = llama_cpp.llama_n_ctx_seq(self._context)
        # Models with learned positions (GPT-2) have only these: llama.cpp aborts at other positions.
        self.n_ctx_slot = min(n_each, self.vocabulary.info.n_ctx_train or n_each)
        """The maximum length of a slot: with one pool of cells, all of them, but at most the training
        context.
        """
        self.n_batch: int = llama_cpp.llama_n_batch(self._context)
        self.n_ubatch: int = llama_cpp.llama_n_ubatch(self._context)
        has_layers = self.plan.options.n_gpu_layers != 0
        self.is_offloaded = has_layers and (self.plan.with_workers or devices.has_gpu())
        """True if a GPU or another machine computes some of the layers."""
        is_plain = self.traits == PLAIN
        self.tiles_attention = is_plain and not self.is_offloaded and _tiles(context_parameters)
        """See `LayoutRules`."""
        self._batch = Batch(self.n_batch, self._positions.position_of)
        self._table_at = (0, 0)  # address and rows of `_last_table`
        self._last_table: Rows = np.empty((0, self.n_vocab), np.float32)  # view of the last pass's logits

    def model_parameters(self) -> Any:
        """Return a llama_model_params for this model, and for other models that are loaded on the same
        devices.
        """
        return model_parameters(self.plan.options, with_workers=self.plan.with_workers)

    def _load_adapters(self) -> list[Any]:
        """Load the adapters; frees the model and raises ModelLoadError if one does not fit."""
        if not self.plan.options.lora:
            return []
        try:
            loaded: list[Any] = adapters().load_adapters(self._model, self.plan.options.lora)
        except ModelLoadError:
            llama_cpp.llama_model_free(self._model)
            raise
        return loaded

    def _open_context(self, parameters: Any) -> tuple[Any, Any, bool]:
        """Return a llama_context, its memory, and whether it uses flash attention.

        Frees the model and raises ModelLoadError if there is no context, or if the files have changed.
        """
        path, options = self.plan.path, self.plan.options
        with library.captured_log() as lines:
            context = llama_cpp.llama_init_from_model(self._model, parameters)
        is_asked = parameters.flash_attn_type != llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        is_used = is_asked and not any(NO_FLASH_ATTENTION in line for line in lines)
        if options.n_gpu_layers:
            flash_attention = options.flash_attn != "off"
            switch_off_if_wrong(path, library.about_devices + lines, flash_attention=flash_attention)
        memory = llama_cpp.llama_get_memory(context) if context else None
        if memory and state_of_files(path, options) == self.plan.files:
            return context, memory, is_used
        architecture = self.vocabulary.info.architecture
        if context:  # an embedding model, such as BERT
            llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(self._model)
        if memory:
            raise changed_meanwhile(path)
        if context:
            raise unusable(path, f"{architecture} models keep no KV cache")
        raise ModelLoadError(_why_no_context(path, options))

    @property
    def prompt_cache(self) -> PromptCacheSize:
        """The size of the prompt cache in host memory."""
        size = self.plan.prompt_cache
        return replace(size, token_bytes=size.token_bytes + sum(part.token_bytes for part in self._parts))

    @property
    def n_activations(self) -> int:
        """The number of activations that the layers compute for a token: `n_embd` in each layer."""
        n_embd: int = llama_cpp.llama_model_n_embd(self._model)
        n_layers: int = llama_cpp.llama_model_n_layer(self._model)
        return n_embd * n_layers

    @property
    def native(self) -> NativeModel:
        """The native model and context, for other computations; `close` frees them."""
        return NativeModel(self._model, self._context)

    def attach(self, part: SlotPart) -> None:
        """Call `part` for every pass and every edit from now on; all slots must be empty."""
        self._parts.append(part)

    @property
    def layout_rules(self) -> LayoutRules:
        """The rules by which `decode` divides spans into passes."""
        return LayoutRules(
            self.n_batch,
            self.n_ctx_slot,
            self.traits,
            own_cells=not self.plan.context.kv_unified,
            batch_sizes=self.batch_sizes,
            tiles_attention=self.tiles_attention,
        )

    def decode(self, spans: Sequence[Span]) -> list[Rows]:
        """Decode `spans`, at most n_batch tokens in total; a `Layout` is decoded as planned.

        Returns the logits of each span, shape (n_logits, n_vocab), as views that the next call overwrites.
        Raises KvCacheFullError (which names the slots that were emptied; the others are unchanged),
        WindowLostError (the cache is unchanged), DecodeAbortedError (slots may hold some of the tokens) or
        DecodeFatalError.
        """
        return self.launch(spans)()

    def launch(self, spans: Sequence[Span]) -> Callable[[], list[Rows]]:
        """Start `decode`; return a function that waits for the last pass and returns the logits.

        Do nothing else with this model until that function has returned. On a CPU there is nothing left to
        wait for.
        """
        began = time.perf_counter()
        planned = spans if isinstance(spans, Layout) else layout(spans, self.layout_rules)
        self._cut_all_padding()
        if self._windows:
            self._windows.require(span.slot for span in planned)
        rows: list[list[Rows]] = [[] for _ in planned]
        for n_done, together in enumerate(planned.passes):
            if n_done:
                self._collect(planned.passes[n_done - 1], rows, is_last=False)
            try:
                self._begin(together)
            except KvCacheFullError as error:
                lost = self._take_back([part.span for done in planned.passes[:n_done] for part in done])
                raise KvCacheFullError(str(error), lost) from error

        launched = time.perf_counter()

        def finish() -> list[Rows]:
            if not any(part.n_rows for part in planned.passes[-1]):  # else reading the logits waits
                llama_cpp.llama_synchronize(self._context)
            self._collect(planned.passes[-1], rows, is_last=True)
            waited = time.perf_counter() - launched
            self.overlaps = self.is_offloaded and waited > launched - began
            return [np.concatenate(each) if len(each) > 1 else each[0] for each in rows]

        return finish

    def _begin(self, together: Pass) -> None:
        self._cut_all_padding()
        if together and together[0].span.image:
            self._begin_image(together[0].span)
        else:
            n_tokens = self._batch.fill(together, self.n_vocab, self.n_slots)
            if code := llama_cpp.llama_decode(self._context, self._batch.native):
                raise _decode_error(code, n_tokens)
        for span, n_padding, _ in (each[1:] for each in together):
            for part in self._parts:
                part.decoded(span.slot, span.start + len(span.tokens), n_padding)

    def _begin_image(self, span: Span) -> None:
        """Decode rows of an image, which are alone in a pass."""
        image = span.image
        assert image is not None
        assert self._images, "this model cannot read images"
        position = self._positions.position_of(span.slot, image.start)
        if code := self._images.decode(span, position):
            raise _decode_error(code, len(span.tokens))
        if span.start == image.start:
            self._positions.add_image(span.slot, image)

    def _collect(self, together: Pass, rows: list[list[Rows]], *, is_last: bool) -> None:
        """Add the logits of a pass to the logits of each span, copied if another pass will overwrite them."""
        for each in self._parts:
            each.computed(together)
        for part, outputs in zip(together, self._rows([part.n_rows for part in together]), strict=True):
            wanted = part.wanted(outputs)
            rows[part.number].append(wanted if is_last else wanted.copy())

    def _cut_all_padding(self) -> None:
        # A recurrent state can be cut back only once: `trim` removes padding and a rejected draft together.
        for slot in list(self._padding.lengths):
            self._cut_padding(slot)

    def _cut_padding(self, slot: int) -> None:
        if (length := self._padding.lengths.get(slot)) is not None:
            self._remove_end(slot, length)

    def _take_back(self, done: Sequence[Span]) -> list[int]:
        """Remove the decoded spans; return the slots that had to be emptied."""
        for span in reversed(done):
            self.trim(span.slot, span.start if self.traits.can_trim else 0)
        return [] if self.traits.can_trim else [span.slot for span in done]

    def trim(self, slot: int, n_keep: int) -> None:
        """Remove all tokens of a slot but the first `n_keep`; raises DecodeFatalError if that fails."""
        self._check(slot)
        self._remove_end(slot, n_keep)

    def copy(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Give the first `n_keep` tokens of a slot to `slot`, which must be empty.

        With `kv_unified` no further cells are used: both slots own the same cells until both have freed them.
        Otherwise the cells are copied, and `traits.can_trim` must be True.
        """
        self._check(source_slot)
        self._check(slot)
        if source_slot == slot:
            raise ValueError(f"slot {slot} cannot be copied to itself")
        assert llama_cpp.llama_memory_seq_pos_max(self._memory, slot) < 0, f"slot {slot} is not empty"
        if self.plan.context.kv_unified:
            end = self._positions.position_of(source_slot, n_keep)
            llama_cpp.llama_memory_seq_cp(self._memory, source_slot, slot, 0, end)
        else:
            assert self.traits.can_trim, "such a copy cannot be cut back"
            self._copy_cells(source_slot, slot, n_keep)
        for part in self._parts:
            part.copied(source_slot, slot, n_keep)

    def _copy_cells(self, source_slot: int, slot: int, n_keep: int) -> None:
        """Copy between slots with cells of their own.

        llama.cpp copies all cells at its next decode. A text loaded into either slot before that would be
        overwritten or copied, and a text stored before that would lack the copied cells. So where texts are
        stored, the copy is made by storing and loading.
        """
        self._positions.copied(source_slot, slot, n_keep)
        if self.plan.prompt_cache.n_bytes:
            self._stored.copy_text(source_slot, slot, n_keep)
        else:
            llama_cpp.llama_memory_seq_cp(self._memory, source_slot, slot, -1, -1)
            self._remove_end(slot, n_keep)

    def use_threads(self, n_threads: int) -> None:
        llama_cpp.llama_set_n_threads(self._context, n_threads, n_threads)

    def watch_steps(self) -> StepProgress:
        """Return an object by which another thread sees whether `decode` makes progress. Keep it as long as
        the model.
        """
        return StepProgress(self._context)

    def interrupt(self) -> ContextInterrupt | None:
        """Return an object by which another thread can stop `decode`. Keep it as long as the model.

        Do not combine it with `watch_steps`. Returns None if the device cannot be stopped, or if the memory
        cannot be cut back.
        """
        return None if self.is_offloaded or not self.traits.can_trim else ContextInterrupt(self._context)

    def store(self, slot: int, snapshot: Snapshot) -> None:
        """Take a snapshot of a slot; raises DecodeFatalError."""
        self._check(slot)
        if snapshot.kind == "device":
            assert self._saved
            self._saved.save(slot, snapshot.key, snapshot.end)
            return
        self._cut_padding(slot)  # llama.cpp stores the state that was rolled back to
        self._stored.store(slot, snapshot)
        if snapshot.kind == "text":
            assert self.plan.prompt_cache.n_bytes, "this model cannot store texts"
            for part in self._parts:
                part.stored(slot, snapshot.key, snapshot.start, snapshot.end)

    def restore(self, slot: int, snapshot: Snapshot, n_keep: int) -> None:
        """Give a slot the first `n_keep` tokens of a text, at most to the snapshot's end.

        Raises DecodeFatalError.
        """
        self._check(slot)
        if snapshot.kind == "text":
            n_held = llama_cpp.llama_memory_seq_pos_max(self._memory, slot) + 1
            expected = self._positions.position_of(slot, snapshot.start)
            # After an image the next position may be far ahead of the last.
            is_right = n_held == expected or self._positions.has_jumps(slot)
            assert is_right, f"slot {slot} holds {n_held} tokens, not {expected}"
            self._stored.restore(slot, snapshot, n_keep)
            for part in self._parts:
                part.loaded(slot, snapshot.key, n_keep)
            return
        if snapshot.kind == "device":
            assert self._saved
            self._saved.restore(snapshot.key, slot)
            self._positions.copied(snapshot.key // self.traits.n_step_checkpoints, slot, snapshot.end)
        else:
            self._stored.restore(slot, snapshot, n_keep)
        for part in self._parts:
            part.trimmed(slot, snapshot.end)

    def forget(self, key: int) -> None:
        """Free a snapshot in host memory."""
        for part in self._parts:
            part.forget(key)

    def lend(self, key: int) -> memoryview | None:
        """Lend the bytes of a stored state (`StoredStates.lend`)."""
        return self._stored.lend(key)

    def take_back(self, key: int) -> None:
        """Take lent bytes back (`StoredStates.take_back`)."""
        self._stored.take_back(key)

    def reserve(self, key: int, size: int) -> memoryview:
        """Reserve memory for a state that will be loaded (`StoredStates.reserve`)."""
        return self._stored.reserve(key, size)

    def clear(self) -> None:
        """Empty all slots, and free all stored states."""
        for slot in range(self.n_slots):
            self.trim(slot, 0)
        for part in self._parts:
            part.clear()

    def close(self) -> None:
        """Free the native objects; this object must not be used afterwards."""
        self._stored.clear()
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def _check(self, slot: int) -> None:
        if not 0 <= slot < self.n_slots:
            raise ValueError(f"slot {slot} of {self.n_slots}")

    def _remove_end(self, slot: int, n_keep: int) -> None:
        end = self._positions.position_of(slot, n_keep)
        done = llama_cpp.llama_memory_seq_rm(self._memory, slot, end, -1)
        if not done:  # "returns false if a partial sequence cannot be removed" (llama.h)
            raise DecodeFatalError(f"this model's memory cannot be cut back to {n_keep} tokens")
        for part in self._parts:
            part.trimmed(slot, n_keep)

    def _rows(self, n_outputs: Sequence[int]) -> list[Rows]:
        if sum(n_outputs) == 0:
            return [np.empty((0, self.n_vocab), np.float32)] * len(n_outputs)
        # llama.h: one row for each token with llama_batch.logits[i] != 0, contiguous, in order of the batch
        first, n_rows = llama_cpp.llama_get_logits(self._context).contents, sum(n_outputs)
        table = self._table(ctypes.addressof(first), n_rows)
        if len(n_outputs) == 1:
            return [table]
        ends = itertools.accumulate(n_outputs)
        return [table[end - n : end] for n, end in zip(n_outputs, ends, strict=True)]

    def _table(self, address: int, n_rows: int) -> Rows:
        """Return a view of llama.cpp's logits, whose address is usually the same as after the last step."""
        where = address, n_rows
        if where != self._table_at:
            memory = (ctypes.c_float * (n_rows * self.n_vocab)).from_address(address)
            self._table_at = where
            self._last_table = np.frombuffer(memoryview(memory), np.float32).reshape(n_rows, self.n_vocab)
        return self._last_table


def _pinned(placement: Placement | None) -> int | None:
    """Return the type of host memory that the first device with a part of the cache copies quickly."""
    on = (
        [each.name for each in placement.devices if (CACHE, each.name) in placement.parts]
        if placement
        else []
    )
    return devices.pinned_buffer_type(on[0]) if on else None


def _tiles(parameters: Any) -> bool:
    """Return whether llama.cpp's flash attention on CPUs processes tokens of several sequences in tiles."""
    is_on = parameters.kv_unified and parameters.flash_attn_type != llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    types = (llama_cpp.GGML_TYPE_F16, llama_cpp.GGML_TYPE_F32)
    return is_on and parameters.type_k == parameters.type_v and parameters.type_k in types


def _decode_error(code: int, n_tokens: int) -> Exception:
    if code == 1:
        return KvCacheFullError(f"no room in the KV cache for a batch of {n_tokens} tokens")
    if code == 2:  # noqa: PLR2004 - llama.h: "2 - aborted"
        return DecodeAbortedError(f"llama_decode was aborted in a batch of {n_tokens} tokens")
    return DecodeFatalError(f"llama_decode failed with {code} on a batch of {n_tokens} tokens")


def _why_no_context(path: Path, options: ModelOptions) -> str:
    size = f"a context of {options.ctx_size} tokens" if options.ctx_size else "the model's context"
    reason = f"{path}: not enough memory for {size}. Lower --ctx-size"
    types = {options.cache_type_k, options.cache_type_v}
    if types <= UNQUANTIZED:
        return reason
    return (
        f"{reason}, or use --cache-type-k f16 and --cache-type-v f16: the model's attention heads "
        f"may not divide into blocks of {' and '.join(sorted(types))}"
    )
