"""Distributes weights and KV cache over devices, from sizes alone.

llama.cpp reports the memory for intermediate results only once it has planned a placement (`settle`).
"""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from shared.llama.placement import (
    CACHE,
    COMPUTING,
    CPU,
    EMBEDDINGS,
    EXPERTS,
    OUTPUT,
    Device,
    Placement,
    group_of,
)
from shared.settings.model_options import ModelOptions
from shared.settings.options import AUTO_LAYERS

_LAYER = re.compile(r"^blk\.(\d+)\.")
_MIB = 1 << 20
_MARGIN_SHARE = 8
"""--fit-target is at most 1 / 8 of a device, otherwise no layer would fit on a small device."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes to place, in bytes.

    tensors: the sizes of tensors by name. n_layers: the number of layers, without the output. caches: the
    size of each layer's caches.
    """

    tensors: Mapping[str, int]
    n_layers: int
    caches: Sequence[int]

    @property
    def is_mixture(self) -> bool:
        return any(group_of(name) == EXPERTS for name in self.tensors)


def settle(
    sizes: ModelSizes,
    devices: Sequence[Device],
    options: ModelOptions,
    measure: Callable[[Placement], Mapping[str, int]],
) -> Placement:
    """Call `place` until the placement accounts for the intermediate results that `measure` reports for it.

    That memory changes with the placement, so `place` may have to choose again; an estimate is never lowered.
    """
    computing: Counter[str] = Counter()
    measured: ModelOptions | None = None
    found: Mapping[str, int] = {}
    while True:
        chosen = place(sizes, devices, options, computing)
        if chosen.problem:
            return chosen
        if chosen.options(options) == measured:
            return chosen.with_computing(found)
        measured, found = chosen.options(options), measure(chosen)
        computing |= Counter(found)


def place(
    sizes: ModelSizes, devices: Sequence[Device], options: ModelOptions, computing: Mapping[str, int]
) -> Placement:
    """Place a model on these devices, which need `computing` bytes each in addition.

    With --n-gpu-layers auto, all layers go to the devices if they fit there. Otherwise the experts of as few
    layers as possible go to the CPU, and then whole layers. A given number of layers is placed as requested;
    `problem` says if that is impossible.
    """
    search = _Search(sizes, devices, options, computing)
    asked, is_fitted = options.n_gpu_layers, options.fit == "on" and options.split_mode != "row"
    if asked == AUTO_LAYERS and is_fitted:
        return next(filter(None, search.candidates()))
    found = search.at(search.n_max if asked < 0 else asked)
    return replace(found, problem=search.problem(found)) if is_fitted else found


class _Search:
    """Tries placements of one model."""

    def __init__(
        self,
        sizes: ModelSizes,
        devices: Sequence[Device],
        options: ModelOptions,
        computing: Mapping[str, int],
    ) -> None:
        self._sizes = sizes
        self._devices = devices
        self._options = options
        self._computing = computing
        self._weights = _grouped(sizes, [place.partition("=")[::2] for place in options.override_tensor])
        self.n_max = sizes.n_layers + 1
        self._n_with_experts = sizes.n_layers if sizes.is_mixture else 0
        self._n_cpu_moe = min(self.n_max if options.cpu_moe else options.n_cpu_moe, self._n_with_experts)
        margins = [min(options.fit_target * _MIB, device.total // _MARGIN_SHARE) for device in devices]
        self._rooms = [max(0, device.free - margin) for device, margin in zip(devices, margins, strict=True)]
        is_split = len(devices) > 1 and options.split_mode == "layer"
        # What is free is given as shares: llama.cpp would ask again, and not know what others will take.
        free = tuple(device.free / _MIB for device in devices) if is_split else ()
        self._shares = options.tensor_split or free

    def candidates(self) -> Iterator[Placement | None]:
        """Yield placements, the best first; None stands for a placement that does not fit. The last
        placement, with all layers on the CPU, fits.
        """
        n_moved = self._n_with_experts
        yield from (self._fitting(self.n_max, n) for n in range(self._n_cpu_moe, n_moved + 1))
        yield from (self._fitting(n, n_moved) for n in range(self.n_max - 1, 0, -1))
        yield self.at(0)

    def at(
        self, n_gpu_layers: int, n_cpu_moe: int | None = None, tensor_split: tuple[float, ...] = ()
    ) -> Placement:
        """Return the placement with this many layers on the devices, divided by `tensor_split`, else as
        requested, else by free memory.
        """
        n_gpu_layers = min(n_gpu_layers, self.n_max) if self._devices else 0
        n_cpu_moe = self._n_cpu_moe if n_cpu_moe is None else n_cpu_moe
        shares = tensor_split or self._shares
        places = self._places(n_gpu_layers, shares)
        parts = self._parts(places, n_cpu_moe)
        if n_gpu_layers:
            computing = {
                place: self._computing.get(place, 0) for place in {CPU, *(place for _, place in parts)}
            }
            parts += Counter({(COMPUTING, place): n_bytes for place, n_bytes in computing.items()})
        return Placement(self._devices, self.n_max, n_gpu_layers, n_cpu_moe, shares, parts)

    def problem(self, found: Placement) -> str:
        """Return why llama.cpp cannot load the placement; empty: it can."""
        for device in found.devices:
            n_used = found.used(device.name)
            if n_used > device.free:
                cache = found.parts.get((CACHE, device.name), 0)
                lower = "--ctx-size" if cache > n_used / 2 else "--n-gpu-layers"
                if found.parts.get((EXPERTS, device.name)):
                    lower += " or raise --n-cpu-moe"
                return (
                    f"{device.name} needs {n_used / _MIB:.0f} MiB, {cache / _MIB:.0f} MiB of them "
                    f"for the KV cache, but only {device.free / _MIB:.0f} MiB are free. Lower "
                    f"{lower}"
                )
        if unheld := self._unheld(found):
            return (
                f"the KV cache of a layer is too large for {unheld.name}. Its largest tensor can "
                f"have {unheld.max_tensor / _MIB:.0f} MiB. Lower --ctx-size"
            )
        return ""

    def _fitting(self, n_gpu_layers: int, n_cpu_moe: int) -> Placement | None:
        """Return a placement that fits; None: none does.

        Layers are divided as requested. Without a request they are divided by free memory or, if that does
        not fit, each device in turn gets as many layers as it holds.
        """
        by_default = self.at(n_gpu_layers, n_cpu_moe)
        if self._fits(by_default):
            return by_default
        if self._options.tensor_split or len(self._devices) == 1:
            return None
        filled = self.at(n_gpu_layers, n_cpu_moe, self._filled(n_gpu_layers, n_cpu_moe))
        return filled if self._fits(filled) else None

    def _fits(self, found: Placement) -> bool:
        rooms = zip(self._devices, self._rooms, strict=True)
        return all(found.used(device.name) <= room for device, room in rooms) and not self._unheld(found)

    def _unheld(self, found: Placement) -> Device | None:
        """Return a device that gets a layer whose cache has a larger tensor than the device can hold; None:
        there is no such device.
        """
        if not self._options.kv_offload:
            return None
        places = self._places(found.n_gpu_layers, found.tensor_split)
        by_name = {device.name: device for device in self._devices}
        for place, cache in zip(places, self._sizes.caches, strict=False):
            if (device := by_name.get(place)) and cache > 2 * device.max_tensor:  # K and V
                return device
        return None

    def _filled(self, n_gpu_layers: int, n_cpu_moe: int) -> tuple[float, ...]:
        """Return the number of layers on each device if the devices are filled in order."""
        first = self.n_max - n_gpu_layers
        places = [str(i) for i in range(self.n_max)]  # each layer on a device of its own
        alone = Counter[str]()
        for (_, place), n_bytes in self._parts(places, n_cpu_moe).items():
            alone[place] += n_bytes
        counts = [0] * len(self._devices)
        index, room = 0, self._room(0)
        for i in range(first, self.n_max):
            while alone[str(i)] > room and index < len(counts) - 1:
                index += 1
                room = self._room(index)
            room -= alone[str(i)]
            counts[index] += 1
        return tuple(map(float, counts))

    def _room(self, index: int) -> int:
        return self._rooms[index] - self._computing.get(self._devices[index].name, 0)

    def _places(self, n_gpu_layers: int, shares: Sequence[float]) -> list[str]:
        """Return the places of each layer and of the output, as llama.cpp divides them (`load_tensors`)."""
        on_cpu = [CPU] * (self.n_max - n_gpu_layers)
        if not n_gpu_layers:
            return on_cpu
        given = [*shares, *[0.0] * (len(self._devices) - len(shares))]
        weights = given if any(given) else [float(device.free) for device in self._devices]
        total = sum(weights) or 1.0
        bounds = [round(bound * n_gpu_layers / total, 6) for bound in accumulate(weights)]
        bounds[-1] = n_gpu_layers
        return [*on_cpu, *(self._devices[bisect(bounds, i)].name for i in range(n_gpu_layers))]

    def _parts(self, places: Sequence[str], n_cpu_moe: int) -> Counter[tuple[str, str]]:
        """Return the bytes of weights and caches by (group, place), without intermediate results."""
        parts: Counter[tuple[str, str]] = Counter()
        for (group, layer, buffer), n_bytes in self._weights.items():
            is_moved = group == EXPERTS and layer < n_cpu_moe
            place = buffer or (CPU if is_moved or layer < 0 else places[layer])
            parts[group, place] += n_bytes
        # Without an output of its own the embeddings are loaded again on the device that has the last layer.
        if "output.weight" not in self._sizes.tensors and places[-1] != CPU:
            parts[OUTPUT, places[-1]] += self._sizes.tensors.get("token_embd.weight", 0)
        for i, cache in enumerate(self._sizes.caches):
            parts[CACHE, places[i] if self._options.kv_offload else CPU] += cache
        return parts


def _grouped(sizes: ModelSizes, overrides: Sequence[tuple[str, str]]) -> Counter[tuple[str, int, str]]:
    """Return the bytes by group, layer and the buffer that an option names.

    A layer of -1 is the input, `n_layers` the output.
    """
    found: Counter[tuple[str, int, str]] = Counter()
    for name, n_bytes in sizes.tensors.items():
        group, layer = group_of(name), _LAYER.search(name)
        number = int(layer[1]) if layer else -1 if group == EMBEDDINGS else sizes.n_layers
        buffer = next((buffer for pattern, buffer in overrides if re.search(pattern, name)), "")
        found[group, number, buffer] += n_bytes
    return found
