"""Measures the memory that a model with its options needs, in a separate process (`measure`).

llama.cpp computes it without reading weights (`shared.memory.plan_memory`). A separate process is used
because the library stays in memory once it is loaded, and a router should remain small.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lead.settings.lead_settings import LeadSettings
from lead.settings.vector_models import COMPUTING_BYTES
from shared.errors import ConfigError, UnavailableError
from shared.keeper import run_child
from shared.model_files.file_kind import pooling_of, size_of
from shared.python_child import child_command

PROCESS_BYTES = 300 << 20
"""The memory of the processes of a lead besides the model, with a vocabulary of 50,000 tokens."""
_SECONDS = 120.0
_N_PADDED = 256
"""llama.cpp rounds a context up to a multiple of this number."""


class MemoryNeed(BaseModel):
    """The memory that a model needs. sizes: bytes by place, `CPU` or the name of a device.

    free: the free bytes of each device, as if models that could be unloaded were not loaded. n_ctx: the room
    for one request, in tokens; the model's own limit may be lower. n_reserve: the part of this room for
    padding.
    """

    sizes: dict[str, int]
    free: dict[str, int] = {}
    n_ctx: int = 0
    n_reserve: int = 0

    def n_ctx_of_request(self, n_trained: int) -> int:
        """Return the context of one request, as the engine limits it. n_trained: 0 if it is unknown."""
        n_cells = -(-self.n_ctx // _N_PADDED) * _N_PADDED
        return min(n_cells, n_trained or n_cells) - self.n_reserve


async def measure(options: Mapping[str, Any], in_use: Mapping[str, int]) -> MemoryNeed:
    """Return the need of a model with these options (`ServedModel`), as if no other model were loaded.

    in_use: the bytes on each device that belong to models that could be unloaded. Raises ConfigError with the
    reason; raises UnavailableError if a later attempt may succeed.
    """
    question = json.dumps({"options": options, "in_use": in_use}).encode()
    seconds = None if "hf_repo" in options else _SECONDS  # it may be downloaded first
    try:
        done = await run_child(child_command("lead.router.memory_need"), question, seconds)
        if done.returncode == 1:
            raise ConfigError(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
        return MemoryNeed.model_validate_json(done.stdout)
    except (TimeoutError, ValueError) as error:
        raise UnavailableError(f"its memory cannot be estimated: {error}") from error


def memory_need(settings: LeadSettings, in_use: Mapping[str, int]) -> MemoryNeed:
    """Measure the memory of a model in this process; raises ConfigError. in_use: see `measure`."""
    from lead.engine.inline_sources import planned_source  # noqa: PLC0415
    from lead.engine.target_loading import options_of_target, plan_target  # noqa: PLC0415
    from lead.settings.placed_load import placed_load  # noqa: PLC0415 - loads llama.cpp
    from shared.llama.placement import CPU  # noqa: PLC0415

    if settings.source.hf_repo:  # only its file tells the kind of model
        settings = settings.with_model()
    if (path := settings.source.model) and pooling_of(path) is not None:
        return _need_of_vectors(path, in_use, on_gpu=settings.compute.n_gpu_layers != 0)
    settings = settings.with_model()
    assert settings.source.model
    load = placed_load(settings, settings.source.model)
    taken = {place: load.taken.get(place, 0) - in_use.get(place, 0) for place in {*load.taken, *in_use}}
    alone = load.model_copy(update={"taken": taken})
    options, n_reserve = options_of_target(load.options)
    plan = plan_target(alone, planned_source(load), options, n_reserve)
    placement = plan.placement
    texts = settings.compute.cache_ram << 20 if settings.compute.cache_ram > 0 else 0
    host = placement.host_bytes if placement else size_of(load.model) + plan.size.total
    others = min(texts, plan.prompt_cache.n_bytes) + PROCESS_BYTES
    sizes = {CPU: host + load.taken.get(CPU, 0) + others}
    free = {}
    for device in placement.devices if placement else ():
        taken_there = load.taken.get(device.name, 0)
        if device.is_shared:
            sizes[CPU] += taken_there
        elif placement:
            sizes[device.name] = placement.used(device.name) + taken_there
            free[device.name] = device.free + taken_there
    n_ctx = plan.parameters.n_ctx // (1 if plan.context.kv_unified else settings.compute.parallel)
    return MemoryNeed(sizes=sizes, free=free, n_ctx=n_ctx, n_reserve=n_reserve)


def _need_of_vectors(path: Path, in_use: Mapping[str, int], *, on_gpu: bool) -> MemoryNeed:
    """Return the memory of a model for embeddings or reranking."""
    from shared.llama import devices  # noqa: PLC0415 - loads llama.cpp
    from shared.llama.placement import CPU  # noqa: PLC0415

    gpus = [device for device in devices.own_gpus() if on_gpu and not device.is_shared][:1]
    sizes = Counter({CPU: PROCESS_BYTES})
    sizes[gpus[0].name if gpus else CPU] += size_of(path) + COMPUTING_BYTES
    return MemoryNeed(sizes=sizes, free={gpu.name: gpu.free + in_use.get(gpu.name, 0) for gpu in gpus})


def main() -> None:
    """Run `memory_need` in this process: read its arguments from standard input, and write its result, as
    JSON.

    Exits with status 1 and a message after a failure.
    """
    question = json.load(sys.stdin)
    try:
        need = memory_need(LeadSettings.from_options(**question["options"]), question["in_use"])
    except ConfigError as error:
        sys.exit(str(error))
    sys.stdout.write(need.model_dump_json())


if __name__ == "__main__":
    main()
