"""How to load a model and compute with it: options of lead and back, named as in llama-server."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from shared.settings.llama_server_options import GpuLayers, Slots, Threads

_SWITCH: Final = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}


def _read_switch(value: object) -> object:
    return _SWITCH.get(str(value).lower(), value)


def _split_numbers(value: object) -> object:
    return [part for part in value.replace("/", ",").split(",") if part] if isinstance(value, str) else value


FlashAttention = Annotated[Literal["on", "off", "auto"], BeforeValidator(_read_switch)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
SplitMode = Literal["none", "layer", "row"]
Shares = Annotated[tuple[Annotated[float, Field(ge=0)], ...], NoDecode, BeforeValidator(_split_numbers)]

UNQUANTIZED: Final = frozenset({"f32", "f16", "bf16"})
"""The types that the V cache may have without flash attention."""
MAX_SLOTS: Final = 256
"""The most sequences in one cache (llama.cpp's LLAMA_MAX_SEQ)."""
DEFAULT_CTX: Final = 16_384
"""The largest context that is chosen by itself: 5 GB of KV cache for a 70B model."""


class ComputeOptions(BaseModel):
    """What both lead and back can set."""

    model_config = ConfigDict(frozen=True)

    n_gpu_layers: GpuLayers = Field(-1, ge=-1, description="number of layers to store in VRAM; -1: all")
    ctx_size: int = Field(
        0,
        ge=0,
        le=1 << 24,
        description="size of the context in tokens, for all slots together; 0: the model's training context "
        f"for each slot, at most {DEFAULT_CTX} in all",
    )
    parallel: Slots = Field(
        4, ge=1, le=MAX_SLOTS, description="number of slots: requests processed at the same time"
    )
    threads: Threads = Field(
        0,
        ge=0,
        le=1024,
        description="number of CPU threads; 0: one per core of --cpus, or all physical cores but one",
    )
    flash_attn: FlashAttention = Field(
        "auto",
        description="flash attention; auto: where layers are on a GPU, or the V cache is quantized. With it "
        "on a CPU, a text depends on who else is asking",
    )
    cache_type_k: CacheType = Field("f16", description="how keys are kept in the KV cache")
    cache_type_v: CacheType = Field(
        "f16", description="how values are kept there; a quantized one needs flash attention"
    )
    kv_offload: bool = Field(True, description="keep the KV cache on the GPU, too")
    ubatch_size: int = Field(
        512, ge=1, le=1 << 16, description="most tokens that are computed at once, of those in one step"
    )
    threads_batch: int = Field(
        0, ge=-1, le=1024, description="compute threads where a step has several tokens; 0: as --threads"
    )
    load_mode: LoadMode = Field("auto", description="how the file is read: mlock keeps it in memory")
    split_mode: SplitMode = Field("layer", description="how several GPUs share the model")
    main_gpu: int = Field(0, ge=0, description="the GPU to use with --split-mode none")
    tensor_split: Shares = Field((), description="how much each GPU takes, as in 3,1")

    @field_validator("cache_type_v")
    @classmethod
    def _check_flash_attention(cls, value: CacheType, info: ValidationInfo) -> CacheType:
        if value not in UNQUANTIZED and info.data.get("flash_attn") == "off":
            raise ValueError("a quantized V cache needs flash attention: --flash-attn on or auto")
        return value


class ModelOptions(ComputeOptions):
    """All options with which `shared.llama.model.Model` loads a model; `threads` must be chosen, not 0.

    kv_unified: one pool of cells that any slot may fill, up to all of them. Otherwise each slot has an equal
    part, and attention reads no other slot's cells; but llama.cpp decodes such slots together only if they
    are adjacent and have equally many tokens.
    """

    batch_size: int = Field(
        512, ge=1, le=1 << 16, description="logical maximum batch size: tokens in one step"
    )
    kv_unified: bool = Field(
        True,
        description="use one KV cache shared by all slots. --no-kv-unified divides --ctx-size equally among "
        "the slots: faster when all slots are busy, slower otherwise and with drafts",
    )
