"""The rings of every program that loads a model."""

from types import ModuleType

from shared.errors import ModelLoadError
from shared.seams import plugged

RINGS = ("shared.placement", "shared.lora")
"""The packages of the rings. `shared.seams` says how they are plugged in, and tests/test_wall.py keeps the
core free of them.

Seams:
    adapters      checks LoRA adapters, loads and applies them (`shared.llama.model`)
    place_layers  decides which device has which layers (`shared.memory.plan_memory`)
"""


def adapters() -> ModuleType:
    """Return the module for `--lora`; raises ModelLoadError if its ring is not installed."""
    for ring in plugged(RINGS, "adapters"):
        return ring
    raise ModelLoadError(
        "--lora: llama-duo was installed without support for adapters. Remove --lora, or install "
        "all parts of llama-duo"
    )
