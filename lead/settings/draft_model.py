"""The draft models that a lead starts: inside the engine, and in a back on the same machine."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from lead.engine.load import MtpMode
from shared.model_files.builtin import BUILTIN, builtin_draft
from shared.model_files.file_kind import is_eagle_file
from shared.settings.model_options import MAX_CTX, MAX_THREADS, CacheType, ModelOptions
from shared.settings.model_source import HubRepository, ModelPath, ModelSource
from shared.settings.options import (
    AUTO_LAYERS,
    CommaList,
    CpuList,
    GpuLayers,
    OptionError,
    OptionGroup,
    ThreadCount,
)

_MAX_DRAFTED = 32


def _source(given: Path | None, repository: str | None, hub: ModelSource) -> ModelSource:
    """Return the source of a draft model, with the tokenizer, token and offline mode of `hub`.

    Raises ConfigError if the demo's draft model is requested but not installed.
    """
    path = builtin_draft() if given == BUILTIN else given and given.absolute()
    return hub.model_copy(update={"model": path, "hf_repo": repository, "hf_file": None})


class DraftModelOptions(OptionGroup):
    """A draft model, and how it computes; all other options are as for the target."""

    draft_model: ModelPath | None = Field(
        None,
        description="path of a draft model (as with --model), of MTP heads (mtp-*.gguf) or of an EAGLE-3 "
        "drafter; builtin: the demo's draft model. The engine drafts with it between two steps, "
        "on the engine's cores and devices",
    )
    hf_repo_draft: HubRepository | None = Field(
        None,
        description="Hugging Face repository of the draft model, USER/REPO[:QUANT], instead of --draft-model",
    )
    device_draft: CommaList = Field(
        (),
        description="devices for the draft model, as with --device; none: only the CPU. Default: the devices "
        "of the target",
    )
    n_gpu_layers_draft: GpuLayers = Field(
        AUTO_LAYERS,
        ge=-2,
        description="number of layers of the draft model in VRAM, as with --n-gpu-layers; -2 or all: all; -1 "
        "or auto: as many as fit. The draft model gets VRAM before the target",
    )
    threads_draft: ThreadCount = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads of the draft model; 0: one thread or --threads threads, "
        "whichever is faster (measured after loading)",
    )
    ctx_size_draft: int = Field(
        0,
        ge=0,
        le=MAX_CTX,
        description="context size of the draft model in tokens, for all slots together; 0: the context size "
        "of the target. For a longer text, drafts use only its end",
    )
    cache_type_k_draft: CacheType = Field("f16", description="KV cache data type for K of the draft model")
    cache_type_v_draft: CacheType = Field("f16", description="KV cache data type for V of the draft model")
    mtp: MtpMode = Field(
        "auto",
        description="draft with the model's MTP heads (multi-token prediction): on, off or auto (on if the "
        "file has heads and --draft-model is not set)",
    )
    draft_max: int = Field(
        16, ge=1, le=_MAX_DRAFTED, description="maximum number of tokens that the engine drafts for one step"
    )

    @model_validator(mode="after")
    def _check_one_source(self) -> Self:
        if self.draft_model is not None and self.hf_repo_draft is not None:
            raise OptionError("hf_repo_draft", "cannot be combined with --draft-model")
        if self.mtp == "on" and self.is_wanted:
            raise OptionError("mtp", "cannot be combined with --draft-model")
        return self

    @property
    def is_wanted(self) -> bool:
        return self.draft_model is not None or self.hf_repo_draft is not None

    def located(self, hub: ModelSource) -> Self:
        """Return a copy with a file that llama.cpp can load (`ModelSource.located`). Raises ConfigError."""
        if not self.is_wanted or (self.draft_model and is_eagle_file(self.draft_model)):
            return self
        return self.model_copy(
            update={"draft_model": self.source(hub).located().model, "hf_repo_draft": None}
        )

    def source(self, hub: ModelSource) -> ModelSource:
        return _source(self.draft_model, self.hf_repo_draft, hub)

    def model_options(self, target: ModelOptions, cache_ram: int) -> ModelOptions:
        """Return the options to load the draft model with. target: the options of the target beside it.

        cache_ram: MiB for earlier texts. Options that place the target's weights do not apply, except that
        both models are on one GPU with --split-mode none.
        """
        on_one = target.split_mode == "none" and not self.device_draft
        return target.model_copy(
            update={
                "n_gpu_layers": self.n_gpu_layers_draft,
                "threads": self.threads_draft or target.threads,
                "threads_batch": self.threads_draft or target.threads_batch,
                "ctx_size": self.ctx_size_draft,
                "cache_type_k": self.cache_type_k_draft,
                "cache_type_v": self.cache_type_v_draft,
                "kv_unified": True,
                "swa_full": True,  # each draft token is a decode of its own, and several are taken back
                "device": self.device_draft or target.device,
                "split_mode": "none" if on_one else "layer",
                "main_gpu": target.main_gpu if on_one else 0,
                "tensor_split": (),
                "cpu_moe": False,
                "n_cpu_moe": 0,
                "override_tensor": (),
                "lora": (),
                "ctx_checkpoints": 0,
                "cache_ram": cache_ram,
            }
        )


class OwnBackOptions(OptionGroup):
    """The draft model and the cores of the lead's own back; its other options are set by BACK_* variables."""

    back: ModelPath | None = Field(
        None,
        description="start a back on this machine with this draft model (a path, as with --model); builtin: "
        "the demo's draft model",
    )
    back_hf_repo: HubRepository | None = Field(
        None, description="Hugging Face repository of the draft model, USER/REPO[:QUANT], instead of --back"
    )
    back_threads: int = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads for --back; 0: all physical cores of --back-cpus, or "
        "one without --back-cpus",
    )
    back_gpu_layers: GpuLayers = Field(
        AUTO_LAYERS,
        ge=-2,
        description="number of layers of the draft model of --back in VRAM; 0: only the CPU; -2 or all: "
        "all; -1 or auto: as many as fit",
    )
    back_cpus: CpuList | None = Field(
        None,
        description="CPU cores for --back, such as 7 or 6-7. Required with --cpus. No core may be in both",
    )

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.back is not None and self.back_hf_repo is not None:
            raise OptionError("back_hf_repo", "cannot be combined with --back")
        for name in self.model_fields_set - {"back", "back_hf_repo"}:
            if not self.is_wanted and getattr(self, name) != OwnBackOptions.model_fields[name].default:
                raise OptionError(name, "needs a draft model. Set --back FILE")
        return self

    @property
    def is_wanted(self) -> bool:
        return self.back is not None or self.back_hf_repo is not None

    @property
    def n_threads(self) -> int:
        """The number of the back's threads. The default is 1, as the back shares the lead's cores; with cores
        of its own it is 0 (all).
        """
        return self.back_threads or (0 if self.back_cpus else 1)

    def located(self, hub: ModelSource) -> Self:
        """Return a copy with the draft model as a file that llama.cpp can load (`ModelSource.located`).

        Raises ConfigError.
        """
        if not self.is_wanted:
            return self
        return self.model_copy(update={"back": self.source(hub).located().model, "back_hf_repo": None})

    def source(self, hub: ModelSource) -> ModelSource:
        """Return the source of the back's model; its model is unset without --back."""
        return _source(self.back, self.back_hf_repo, hub)
