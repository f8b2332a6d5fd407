"""What an engine process loads: the first line that it reads; commands follow (`lead.engine.commands`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from lead.engine.commands import PolicyName
from lead.engine.events import Exactness
from shared.image_span import ImageMemory
from shared.settings.model_options import ModelOptions
from shared.settings.options import OptionGroup

MtpMode = Literal["auto", "on", "off"]


class LoadDraft(BaseModel, frozen=True):
    """A draft model to load with the target; it drafts at most `n_max` tokens for a step.

    Without `fixed_threads`, the faster of one thread and the threads of `options` is used.
    """

    model: Path
    options: ModelOptions
    n_max: int
    fixed_threads: bool = False


class EngineOptions(OptionGroup):
    """Options for drafting without a draft model, and for the number of draft tokens to verify."""

    policy: PolicyName = Field(
        "adaptive",
        description="how many draft tokens to verify per step: adaptive (the number with the highest "
        "expected speed) or, for comparison, fixed (--depth, or fewer if fewer have arrived), sync (waits "
        "for --depth) or off (none)",
    )
    depth: int = Field(4, ge=0, le=32, description="draft tokens per step with --policy fixed or sync")
    ngram: bool = Field(True, description="also draft from n-grams of the text so far, without a draft model")
    suffix_memory: int | None = Field(
        None,
        ge=0,
        le=4096,
        description="the most memory, in MiB, for recent texts of each API key, from which drafts are taken "
        "like n-grams, without a draft model (SuffixDecoding); 0: none. Without this option 32, but 0 with "
        "--insecure and without keys: timing would tell users about each other's texts",
    )
    suffix_max_age: float = Field(
        3600.0, gt=0, le=31_536_000, description="seconds after which such a text is forgotten"
    )
    calibrate: bool = Field(
        True,
        description="measure the time of steps with different batch sizes: after loading, until the first "
        "request arrives, and again while idle in the first half minute; and at the first start what --exact "
        "would cost",
    )


class DiskCacheOptions(OptionGroup):
    """Options for conversations that are kept beyond the end of a process."""

    cache_disk: Path | None = Field(
        None,
        description="folder in which earlier texts are kept, so that after a restart, a crash, sleep or "
        "--takeover a conversation goes on without being read again. Written in the background when an "
        "answer has ended; for each API key apart, and never of private requests. Whoever reads the folder "
        "reads the texts. It needs room in host memory, see --cache-ram",
    )
    cache_disk_size: int = Field(
        16_384,
        ge=1,
        description="the most that the texts in --cache-disk may take, in MiB, of all models together; those "
        "that were used least recently are deleted",
    )


class Load(EngineOptions, DiskCacheOptions):
    """The first line to an engine process: what to run.

    `exactness` is as an earlier process said in `Ready`, so that this one computes the same bits; None: it
    measures them. `mtp`: draft with the heads of the model, at most `max_mtp` tokens for a step;
    not with a draft model. `rpc`: machines that have layers of it (host:port), waited for at most
    `rpc_timeout` seconds. `taken`: bytes that others, as the draft model, will need of devices and the CPU.
    `max_threads`: what may be used instead of `options.threads`, if that is faster; 0: nothing else.
    `images`: where the embeddings of images are; None: requests have none.
    """

    model: Path
    options: ModelOptions
    draft: LoadDraft | None = None
    mtp: MtpMode = "off"
    max_mtp: int = 16
    heartbeat_seconds: float = 0.0  # between signs of life; 0: none
    exactness: Exactness | None = None
    rpc: tuple[str, ...] = ()
    rpc_timeout: float = 0.0
    taken: Mapping[str, int] = {}
    max_threads: int = 0
    images: ImageMemory | None = None
