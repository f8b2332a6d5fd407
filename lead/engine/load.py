"""The first line that an engine process reads: the model to load. Commands follow
(`lead.engine.commands`).
"""

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
    """A draft model to load with the target; it drafts at most `n_max` tokens per step.

    Without `fixed_threads`, the engine uses the faster of one thread and `options.threads`.
    """

    model: Path
    options: ModelOptions
    n_max: int
    fixed_threads: bool = False


class EngineOptions(OptionGroup):
    """Options for drafting without a draft model, and for the number of draft tokens to verify."""

    policy: PolicyName = Field(
        "adaptive",
        description="policy for the number of draft tokens per step. adaptive verifies the number with "
        "the highest expected speed. For comparison: fixed (at most --depth), sync (waits for "
        "--depth) and off",
    )
    depth: int = Field(4, ge=0, le=32, description="draft tokens per step with --policy fixed or sync")
    ngram: bool = Field(True, description="draft from n-grams of the text so far, without a draft model")
    suffix_memory: int | None = Field(
        None,
        ge=0,
        le=4096,
        description="maximum memory, in MiB, for recent texts of each API key; 0: none. The lead drafts from "
        "these texts without a draft model (SuffixDecoding). Default: 32, but 0 with --insecure "
        "if there are no keys, because timing would tell users about each other's texts",
    )
    suffix_max_age: float = Field(
        3600.0,
        gt=0,
        le=31_536_000,
        description="seconds after which a text of --suffix-memory is deleted",
    )
    calibrate: bool = Field(
        True,
        description="measure how long steps of different batch sizes take. The lead measures after loading, "
        "until the first request arrives, and again while idle in the first half minute. The "
        "first start also measures the cost of --exact",
    )


class DiskCacheOptions(OptionGroup):
    """Options for conversations that are kept beyond the end of a process."""

    cache_disk: Path | None = Field(
        None,
        description="folder for the KV caches of earlier texts. A conversation continues after a restart, a "
        "crash, sleep or --takeover without processing its prompt again. The lead writes in the "
        "background after each answer, separately for each API key, and never for private "
        "requests. Anyone who can read the folder can read the texts. This option needs host "
        "memory (--cache-ram)",
    )
    cache_disk_size: int = Field(
        16_384,
        ge=1,
        description="maximum size of --cache-disk, in MiB, for all models together. The lead deletes the "
        "least recently used texts",
    )


class Load(EngineOptions, DiskCacheOptions):
    """The first line to an engine process: the model to run, and how.

    exactness: from the `Ready` of an earlier process, so that this process computes the same bits; None:
    measure it. mtp: draft with the model's own heads, at most `max_mtp` tokens per step; not with a draft
    model. rpc: addresses (host:port) of machines that hold layers; `rpc_timeout`: seconds to wait for these
    machines. taken: bytes to leave free on devices and the CPU, for example for the draft model. max_threads:
    a number of threads to use instead of `options.threads` if it is faster; 0: none. images: shared memory
    with the embeddings of images; None: requests have no images.
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
