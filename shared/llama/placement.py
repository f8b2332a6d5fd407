"""Placement of weights and KV cache on devices, and the memory that it takes.

llama.cpp counts `n_gpu_layers` from the last layer, with the output as one more layer after it, and gives
each device a run of consecutive layers.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shared.diagnostics.findings import count
from shared.settings.model_options import DEFAULT_BATCH, GPU_BATCH, ModelOptions

CPU = "CPU"
"""The place of all data that is not on a device."""
FIRST_GPU, BESIDE_GPU = "first GPU", "CPU beside a GPU"
"""Stand for devices whose names are known only once llama.cpp has found them: see
`shared.llama.devices.located`.
"""
CACHE, COMPUTING = "KV cache and states", "intermediate results"
_OF_TEXTS = {CACHE, COMPUTING}
EMBEDDINGS, EXPERTS = "embeddings", "experts"
EXPERTS_PATTERN = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""The tensors that --cpu-moe places (llama.cpp's LLM_FFN_EXPS_REGEX)."""
_GROUPS = (
    (EMBEDDINGS, re.compile(r"^token_embd|^per_layer|^position_embd|^token_types")),
    (EXPERTS, re.compile(EXPERTS_PATTERN)),
    ("feed-forward", re.compile(r"^blk\.\d+\.ffn_")),
    ("attention", re.compile(r"^blk\.\d+\.")),
)
OUTPUT = "output"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Device:
    """A device that can hold layers; sizes in bytes.

    is_shared: its memory is the host's. max_tensor: the largest tensor that it can hold.
    """

    name: str
    description: str
    free: int
    total: int
    is_shared: bool = False
    max_tensor: int = 1 << 62


@dataclass(frozen=True, slots=True)
class Placement:
    """Options of llama.cpp that fix the placement, and the resulting bytes by (group, device or CPU).

    n_layers: the number of all layers, including the output. problem: why the model cannot be loaded; empty:
    it can.
    """

    devices: Sequence[Device]
    n_layers: int
    n_gpu_layers: int = 0
    n_cpu_moe: int = 0
    tensor_split: tuple[float, ...] = ()
    parts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    problem: str = ""

    def used(self, place: str) -> int:
        """Return the bytes on the device of this name, or on the CPU.

        Host memory used by devices that share it does not count for the CPU: see `host_bytes`.
        """
        return sum(n_bytes for (_, where), n_bytes in self.parts.items() if where == place)

    @property
    def host_bytes(self) -> int:
        """The bytes of host memory, including the memory of devices that share it."""
        return self.used(CPU) + sum(self.used(device.name) for device in self.devices if device.is_shared)

    @property
    def host_weights(self) -> int:
        """The bytes of weights on the CPU alone. If they are mapped, the system counts them as free."""
        return sum(n for (group, where), n in self.parts.items() if where == CPU and group not in _OF_TEXTS)

    @property
    def cpu_weights(self) -> int:
        """The bytes of weights that the CPU multiplies with, without embeddings, which are only looked up."""
        no_products = {*_OF_TEXTS, EMBEDDINGS}
        return sum(n for (group, where), n in self.parts.items() if where == CPU and group not in no_products)

    @property
    def is_mixture(self) -> bool:
        return any(group == EXPERTS for group, _ in self.parts)

    def with_computing(self, computing: Mapping[str, int]) -> "Placement":
        """Return a copy with these bytes for intermediate results."""
        weights = {key: n_bytes for key, n_bytes in self.parts.items() if key[0] != COMPUTING}
        found = {(COMPUTING, where): n_bytes for where, n_bytes in computing.items()}
        return replace(self, parts=weights | found)

    def options(self, asked: ModelOptions) -> ModelOptions:
        """Return `asked` with all placement options set explicitly."""
        return asked.model_copy(
            update={
                "batch_size": asked.batch_size or (DEFAULT_BATCH if self.cpu_weights else GPU_BATCH),
                "n_gpu_layers": self.n_gpu_layers,
                "n_cpu_moe": self.n_cpu_moe,
                "tensor_split": self.tensor_split,
            }
        )

    def __str__(self) -> str:
        """Return where the layers are, and the memory left free, as text for the log."""
        if not self.n_gpu_layers:
            free = ", ".join(f"{each.name} has {each.free / _MIB:.0f} MiB free" for each in self.devices)
            return f"all layers are on the CPU{free and f' ({free})'}"
        experts = f", the experts of {count(self.n_cpu_moe, 'layer')} on the CPU" if self.n_cpu_moe else ""
        used = (
            f"{self.used(device.name) / _MIB:.0f} of {device.free / _MIB:.0f} free MiB on {device.name} "
            f"({device.description})"
            for device in self.devices
        )
        return f"{self.n_gpu_layers} of {self.n_layers} layers{experts}: {', '.join(used)}"


def group_of(tensor: str) -> str:
    """Return the group of a tensor: embeddings, experts, feed-forward, attention or output."""
    return next((group for group, pattern in _GROUPS if pattern.search(tensor)), OUTPUT)
