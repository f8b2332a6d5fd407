"""Options of lead and back to load a model and compute with it, named as in llama-server."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from shared.sampling.parameters import MAX_TEXT_TOKENS
from shared.settings.options import (
    AUTO_LAYERS,
    AsWritten,
    CommaList,
    GpuLayers,
    OptionError,
    OptionGroup,
    SlotCount,
    ThreadCount,
)

_SWITCH: Final = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}


def _read_switch(value: object) -> object:
    return _SWITCH.get(str(value).lower(), value)


def _split_numbers(value: object) -> object:
    return [part for part in value.replace("/", ",").split(",") if part] if isinstance(value, str) else value


FlashAttention = Annotated[Literal["on", "off", "auto"], BeforeValidator(_read_switch)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
SplitMode = Literal["none", "layer", "row"]
Fit = Annotated[Literal["on", "off"], BeforeValidator(_read_switch)]
Exact = Annotated[Literal["off", "on", "auto"], BeforeValidator(_read_switch)]
Shares = Annotated[tuple[Annotated[float, Field(ge=0)], ...], AsWritten, BeforeValidator(_split_numbers)]


def _check_places(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return `value` if each entry is a valid PATTERN=BUFFER; raises ValueError."""
    for place in value:
        pattern, _, buffer = place.partition("=")
        if not (pattern and buffer):
            raise ValueError(f"write PATTERN=BUFFER, such as exps=CPU, not {place!r}")
        try:
            re.compile(pattern)  # llama.cpp ends the process for a wrong one
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return value


class LoraAdapter(BaseModel, frozen=True):
    """An adapter's file, and the scale with which it is applied. `state_of_files` describes its content."""

    path: Path
    scale: float = Field(1.0, allow_inf_nan=False)


def _read_adapters(value: object) -> object:
    """Parse FILE or FILE:SCALE; raises ValueError."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    return [_read_adapter(part.strip()) if isinstance(part, str) else part for part in parts if part]


def _read_adapter(text: str) -> LoraAdapter:
    path, scale = Path(text), 1.0
    name, colon, factor = text.rpartition(":")
    if colon and not path.exists():
        try:
            path, scale = Path(name), float(factor)
        except ValueError:
            raise ValueError(f"write FILE or FILE:SCALE, not {text!r}") from None
    try:
        path.stat()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    return LoraAdapter(path=path.absolute(), scale=scale)


LoraAdapters = Annotated[tuple[LoraAdapter, ...], AsWritten, BeforeValidator(_read_adapters)]
TensorPlaces = Annotated[CommaList, AfterValidator(_check_places)]

UNQUANTIZED: Final = frozenset({"f32", "f16", "bf16"})
"""The types that the V cache may have without flash attention."""
DEFAULT_SLOTS: Final = 4
MAX_SLOTS: Final = 256
"""The maximum number of sequences in one cache (llama.cpp's LLAMA_MAX_SEQ)."""
DEFAULT_CTX: Final = 16_384
"""The largest context that is chosen by default: 5 GB of KV cache for a 70B model."""
MAX_CTX: Final = MAX_TEXT_TOKENS
MIN_BATCH: Final = 32
"""The minimum number of tokens that a batch can hold: measurements and drafts need some."""
DEFAULT_BATCH: Final = 512
GPU_BATCH: Final = 2048
"""The default batch with all layers in VRAM, several times `ubatch_size`: llama.cpp computes the parts of a
batch on several devices at the same time.
"""
MAX_THREADS: Final = 1024


class ComputeOptions(OptionGroup):
    """The options that both lead and back have."""

    n_gpu_layers: GpuLayers = Field(
        AUTO_LAYERS,
        ge=-2,
        description="number of layers in VRAM, counted from the last layer; -2 or all: all; -1 or auto: "
        "as many as fit. auto leaves room for the context, the draft model and --fit-target. "
        "For a mixture-of-experts model, auto moves experts to RAM before whole layers",
    )
    ctx_size: int = Field(
        0,
        ge=0,
        le=MAX_CTX,
        description="size of the context in tokens, for all slots together; 0: the model's training "
        f"context times --parallel, at most {DEFAULT_CTX}",
    )
    parallel: SlotCount = Field(
        DEFAULT_SLOTS,
        ge=1,
        le=MAX_SLOTS,
        description="number of slots, which process requests in parallel",
    )
    threads: ThreadCount = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads; 0: all physical cores of --cpus except efficiency cores. "
        "Without --cpus, a lead uses all cores of the machine, or all but one if a back runs on "
        "this machine or one thread fewer is faster",
    )
    flash_attn: FlashAttention = Field(
        "auto",
        description="flash attention: on, off or auto. auto means on for layers on a GPU, a quantized V "
        f"cache or more than {DEFAULT_SLOTS} slots. Otherwise the first start of a lead "
        "without --exact measures which is faster, and later starts use the result. With "
        "flash attention, results on a CPU may depend on other running requests",
    )
    cache_type_k: CacheType = Field("f16", description="KV cache data type for K")
    cache_type_v: CacheType = Field(
        "f16", description="KV cache data type for V; quantized types need flash attention"
    )
    cache_ram: int = Field(
        8192,
        ge=-1,
        description="maximum host memory for the KV caches of earlier requests, in MiB; -1: no limit, 0: "
        "none. The texts of idle slots move there. A request that continues such a text does "
        "not process it again. Each of --draft-model and --back gets an eighth of a lead's share. "
        "In any case at most a quarter of the memory that the weights leave free is used. Not used "
        "with --rpc, for sliding windows with --exact, or with --swa-full and --no-kv-unified",
    )
    kv_offload: bool = Field(True, description="keep the KV cache in VRAM")
    ubatch_size: int = Field(
        512,
        ge=1,
        le=1 << 16,
        description="physical maximum batch size. A larger batch is computed in several parts",
    )
    threads_batch: int = Field(
        0,
        ge=-1,
        le=MAX_THREADS,
        description="number of CPU threads for batches with more than one token; 0: same as --threads",
    )
    load_mode: LoadMode = Field(
        "auto",
        description="how to read the model file: mmap, mlock (keep it in RAM), mmap+mlock, dio (direct I/O), "
        "none (read it into memory) or auto",
    )
    repack: bool = Field(
        True,
        description="repack weights for the CPU's matrix instructions while loading. --no-repack lets "
        "--exact work with more models",
    )
    device: CommaList = Field(
        (),
        description="comma-separated devices to offload to, as named by --list-devices; none: only the "
        "CPU. Default: all GPUs, but integrated GPUs only if there are no others",
    )
    split_mode: SplitMode = Field(
        "layer", description="how to split the model across multiple GPUs: none, layer or row"
    )
    main_gpu: int = Field(
        0, ge=0, description="index of the GPU to use with --split-mode none, counted from 0"
    )
    tensor_split: Shares = Field(
        (), description="fraction of the model to offload to each GPU, as a list of proportions such as 3,1"
    )
    cpu_moe: bool = Field(False, description="mixture of experts: keep the experts of all layers in RAM")
    n_cpu_moe: int = Field(
        0,
        ge=0,
        description="mixture of experts: keep the experts of the first N layers in RAM, and the rest in VRAM",
    )
    override_tensor: TensorPlaces = Field(
        (),
        description="placement of tensors, as PATTERN=BUFFER,…: PATTERN is a regular expression, BUFFER is "
        "CPU or a device of --list-devices. The first pattern that matches a tensor's name "
        "decides, before --cpu-moe",
    )
    fit: Fit = Field(
        "on",
        description="check memory before loading: on or off. With on, a model or context that does not "
        "fit is refused. With off, --n-gpu-layers auto means all, and llama.cpp tries to load "
        "the model",
    )
    fit_target: int = Field(
        1024,
        ge=0,
        description="memory in MiB that --n-gpu-layers auto leaves free on each device for drivers, but at "
        "most an eighth of the device",
    )

    @model_validator(mode="after")
    def _check_flash_attention(self) -> Self:
        if self.cache_type_v not in UNQUANTIZED and self.flash_attn == "off":
            raise OptionError(
                "cache_type_v", "a quantized V cache needs flash attention: --flash-attn on or auto"
            )
        return self


class ModelOptions(ComputeOptions):
    """All options with which `shared.llama.model.Model` loads a model; `threads` must not be 0 then.

    kv_unified: one pool of cells that any slot may fill. Otherwise each slot has an equal part, and attention
    reads no other slot's cells; but llama.cpp decodes such slots together only if they are adjacent and have
    equally many tokens.
    """

    kv_unified: bool = Field(
        True,
        description="share one KV cache between all slots. --no-kv-unified gives each slot an equal part "
        "of --ctx-size, which no text can exceed. Equal parts process many long, different "
        "prompts faster (on a CPU 1.15 times for eight prompts of 900 tokens and a 0.2B model). "
        "Steps with drafts or few busy slots may be slower",
    )
    lora: LoraAdapters = Field(
        (),
        description="LoRA adapters in GGUF format: FILE or FILE:SCALE, comma-separated or by repeating "
        "the option. Backs and draft models need no adapters",
    )
    exact: Exact = Field(
        "off",
        description="bit-identical text on every run: on, off or auto. The text then does not depend on "
        "backs, other clients or restarts. --exact alone means on. on refuses to start if "
        "this is not possible. auto means on if it costs at most 5 %. The first start "
        "measures the cost in about ten seconds",
    )
    batch_size: int | None = Field(
        None,
        ge=MIN_BATCH,
        le=1 << 16,
        description="logical maximum batch size, the number of tokens in one decoding step. Default: "
        f"{GPU_BATCH} with all layers in VRAM, so that several devices work at the same time, "
        f"else {DEFAULT_BATCH}",
    )
    swa_full: bool = Field(
        False,
        description="keep all tokens of sliding-window models in the KV cache, not only the window. This "
        "takes more memory, but requests can reuse any prefix of an earlier request",
    )
    ctx_checkpoints: int = Field(
        8,
        ge=0,
        le=256,
        description="number of checkpoints per slot, for models with sliding windows or recurrent states; "
        "0: none. A request can reuse an earlier prompt up to a checkpoint",
    )
    checkpoint_memory: int = Field(
        2048, ge=0, description="maximum memory for the checkpoints of all slots, in MiB"
    )

    def on_cpu(self) -> Self:
        """Return a copy of the options without devices."""
        return self.model_copy(update={"n_gpu_layers": 0})

    def for_exact(self) -> Self:
        """Return a copy for `exact`: each slot has cells of its own, which keep its whole text in order."""
        flash_attn = self.flash_attn
        if flash_attn == "auto" and self.cache_type_v in UNQUANTIZED:
            flash_attn = "off"  # on a CPU its results depend on how full the cache is
        return self.model_copy(update={"kv_unified": False, "swa_full": True, "flash_attn": flash_attn})
