"""Places layers: llama.cpp measures each choice until one fits."""

from collections.abc import Mapping

from shared.llama import devices
from shared.llama.memory_size import MemorySize
from shared.llama.placement import Placement
from shared.memory.model_outline import ModelOutline
from shared.memory.plan_memory import Unplaced
from shared.placement.layer_search import ModelSizes, settle


def place_layers(model: Unplaced) -> tuple[Placement, MemorySize]:
    """Return the placement of layers, and the context's memory there; if they do not fit, the placement says
    so.
    """
    outline, room = model.outline, model.room
    without_devices = model.context.parameters(model.options.on_cpu())
    size = outline.texts_size(without_devices) if room.gpus else outline.size(without_devices)
    n_layers, n_heads = outline.measured.n_layers, outline.measured.n_heads
    caches = size.caches(n_layers)
    if model.with_heads:  # they have a context of their own, with a cache and a graph
        caches[-n_heads:] = [max(caches)] * n_heads
    names = devices.buffer_names(room.handles or ())

    def computing(tried: Placement) -> Mapping[str, int]:
        nonlocal size
        if tried.n_gpu_layers:
            placed = tried.options(model.options)
            with ModelOutline.load(model.path, placed, with_heads=model.with_heads) as other:
                size = other.size(model.context.parameters(placed))
        elif room.gpus:
            size = outline.size(without_devices)
        n_graphs = 1 + model.with_heads
        return {place: n_graphs * n_bytes for place, n_bytes in size.computing_by(names).items()}

    sizes = ModelSizes(model.weights, n_layers, caches)
    placement = settle(sizes, room.gpus, model.options, computing)
    return placement, size
