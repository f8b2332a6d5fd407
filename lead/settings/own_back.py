"""The back that the lead starts itself, on the same machine."""

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from shared.models.builtin import builtin_draft
from shared.settings.base import CpuList, OptionError, OptionGroup
from shared.settings.llama_server_options import GpuLayers
from shared.settings.model_options import MAX_THREADS
from shared.settings.model_source import ModelSource, check_repository

_BUILTIN = Path("builtin")


class OwnBackOptions(OptionGroup):
    """Its draft model and where that runs; everything else is set by BACK_* variables."""

    back: Path | None = Field(
        None,
        description="path of a draft model (as with --model): start a back with it on this machine; builtin: "
        "the demo's draft model",
    )
    back_hf_repo: str | None = Field(
        None, description="Hugging Face repository of the draft model, USER/REPO[:QUANT], instead of --back"
    )
    back_threads: int = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads of the back started by --back; 0: all physical cores of "
        "--back-cpus; without --back-cpus, one",
    )
    back_gpu_layers: GpuLayers = Field(
        -1, ge=-1, description="number of layers of the draft model of --back to store in VRAM; -1: all"
    )
    back_cpus: CpuList | None = Field(
        None,
        description="CPU cores of the back started by --back, as in 7 or 6-7; required if --cpus is set, and "
        "must not overlap with it",
    )

    @field_validator("back_hf_repo")
    @classmethod
    def _check_repository(cls, value: str | None) -> str | None:
        return check_repository(value)

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.back is not None and self.back_hf_repo is not None:
            raise OptionError("back_hf_repo", "cannot be combined with --back")
        for name in self.model_fields_set - {"back", "back_hf_repo"}:
            if not self.is_wanted and getattr(self, name) != OwnBackOptions.model_fields[name].default:
                raise OptionError(name, "needs a draft model: --back FILE")
        return self

    @property
    def is_wanted(self) -> bool:
        """Whether the lead starts a back."""
        return self.back is not None or self.back_hf_repo is not None

    @property
    def n_threads(self) -> int:
        """One by default, because the back shares the lead's cores, unless it has cores of its own (0)."""
        return self.back_threads or (0 if self.back_cpus else 1)

    def located(self, hub: ModelSource) -> Self:
        """A copy with the draft model as a file that llama.cpp can load, as `ModelSource.located`.

        Raises ConfigError.
        """
        if not self.is_wanted:
            return self
        return self.model_copy(update={"back": self.source(hub).located().model, "back_hf_repo": None})

    def source(self, hub: ModelSource) -> ModelSource:
        """The draft model, with the tokenizer, token and offline mode of `hub`; none without --back.

        Raises ConfigError in an installation without the demo's.
        """
        path = builtin_draft() if self.back == _BUILTIN else self.back and self.back.absolute()
        return hub.model_copy(update={"model": path, "hf_repo": self.back_hf_repo, "hf_file": None})
