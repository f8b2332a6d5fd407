"""Caches the sizes of a model's contexts, because measuring them takes long.

Most of the time goes into reading the vocabulary, which llama.cpp reads even for a model without weights:
more than a second for a quarter of a million tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from shared.cached_files import CacheFolder
from shared.llama import library
from shared.llama.memory_size import MemorySize
from shared.llama.remembered import Remembered
from shared.llama.start_key import StoredKind, start_key, state_of_files
from shared.memory.model_outline import MemoryProbe, ModelOutline
from shared.settings.model_options import ModelOptions

_VERSION = 1
"""Raise this when something else is measured."""


class MeasuredOutline(BaseModel):
    """Measurements of a `ModelOutline`; sizes by the context's parameters."""

    n_ctx_train: int
    n_layers: int
    n_heads: int
    used_experts: float
    probe: MemoryProbe
    sizes: dict[str, MemorySize] = {}

    @property
    def is_complete(self) -> bool:
        """False if there was no memory even for contexts that allocate nothing."""
        return self.probe.checkpoint_bytes + self.probe.full_token_bytes > 0 and all(
            size.total for size in self.sizes.values()
        )


class StoredOutline:
    """A `ModelOutline` on the CPU that loads the model only if a size is not cached."""

    def __init__(self, load: Callable[[], ModelOutline], measured: MeasuredOutline | None) -> None:
        self._load = load
        self._loaded: ModelOutline | None = None
        self.measured = measured or self._measure()

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, options: ModelOptions, *, with_heads: bool = False
    ) -> Iterator["StoredOutline"]:
        """Open the outline; `options` must put no layers on devices. Raises ModelLoadError."""
        library.start()
        files = state_of_files(path, options)
        key = start_key(StoredKind.MEMORY, files, options, version=_VERSION, with_heads=with_heads)
        stored = Remembered(CacheFolder.MEMORY, MeasuredOutline, key)
        with ExitStack() as loaded:
            outline = cls(
                lambda: loaded.enter_context(ModelOutline.load(path, options, with_heads=with_heads)),
                stored.recall(),
            )
            yield outline
            if outline._loaded and outline.measured.is_complete:
                stored.keep(outline.measured)

    def _outline(self) -> ModelOutline:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _measure(self) -> MeasuredOutline:
        outline = self._outline()
        return MeasuredOutline(
            n_ctx_train=outline.n_ctx_train,
            n_layers=outline.n_layers,
            n_heads=outline.n_heads,
            used_experts=outline.used_experts,
            probe=outline.probe(),
        )

    def texts_size(self, parameters: Any) -> MemorySize:
        """Return the result of `ModelOutline.texts_size`, cached."""
        return self._size(ModelOutline.texts_size, parameters)

    def size(self, parameters: Any) -> MemorySize:
        """Return the result of `ModelOutline.size`, cached."""
        return self._size(ModelOutline.size, parameters)

    def _size(self, measure: Callable[[ModelOutline, Any], MemorySize], parameters: Any) -> MemorySize:
        values = (getattr(parameters, name) for name, *_ in parameters._fields_)
        key = f"{measure.__name__} {[value for value in values if isinstance(value, int | float)]}"
        if key not in self.measured.sizes:
            self.measured.sizes[key] = measure(self._outline(), parameters)
        return self.measured.sizes[key]
