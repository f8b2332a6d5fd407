"""How llama.cpp is to compute, beyond the sizes: what lead and back set alike. Names are llama.cpp's."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_settings import NoDecode

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
"""The cache types that the value half of the cache may have without flash attention."""


class Compute(BaseModel):
    """Mixed into the settings of lead and back, and passed on to the process that loads the model."""

    model_config = ConfigDict(frozen=True)

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

    @property
    def compute(self) -> "Compute":
        """These settings alone."""
        return Compute(**{name: getattr(self, name) for name in Compute.model_fields})
