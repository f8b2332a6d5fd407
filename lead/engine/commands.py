"""Commands: what the front process sends to the engine process, one JSON object per line over a socket pair.

Both ends are ours, so what arrives is trusted; drafts of backs have been checked. The other direction is
`lead.engine.events`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter

from lead.engine.events import Exactness
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions
from shared.settings.options import OptionGroup

MtpMode = Literal["auto", "on", "off"]
PolicyName = Literal["adaptive", "fixed", "sync", "off"]
NGRAM, PREDICTION, SUFFIX, DRAFT_MODEL, MTP = "ngram", "prediction", "suffix", "draft_model", "mtp"
OWN_SOURCES = frozenset({NGRAM, PREDICTION, SUFFIX, DRAFT_MODEL, MTP})
"""The draft sources in the lead itself; a back may not have such a name."""


class LoadDraft(BaseModel, frozen=True):
    """A draft model to load with the target; it drafts at most `n_most` tokens for a step.

    Without `fixed_threads`, what is faster of one thread and those of `options`.
    """

    model: Path
    options: ModelOptions
    n_most: int
    fixed_threads: bool = False


class EngineOptions(OptionGroup):
    """Drafting without a draft model, and how many draft tokens to verify."""

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
        "request arrives, and again while idle in the first half minute",
    )


class DiskCacheOptions(OptionGroup):
    """Conversations that survive the end of a process."""

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
    """The first command: what to run.

    `exactness` is as an earlier process said in `Ready`, so that this one computes the same bits; None: it
    measures them. `mtp`: draft with the heads of the model, at most `n_most_mtp` tokens for a step;
    not with a draft model. `rpc`: machines that have layers of it (host:port), waited for at most
    `rpc_timeout` seconds. `taken`: bytes that the draft model will need of the devices and the CPU, by name.
    `most_threads`: what may be used instead of `options.threads`, if that is faster; 0: nothing else.
    """

    type: Literal["load"] = "load"
    model: Path
    options: ModelOptions
    draft: LoadDraft | None = None
    mtp: MtpMode = "off"
    n_most_mtp: int = 16
    heartbeat_seconds: float = 0.0  # between signs of life; 0: none
    exactness: Exactness | None = None
    rpc: tuple[str, ...] = ()
    rpc_timeout: float = 0.0
    taken: Mapping[str, int] = {}
    most_threads: int = 0


BY_WAY_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("policy", "draft", "mtp"), "with_heads"),
    "calibrate": "flash_attn",
    "exactness": "batch_sizes",
    "taken": "n_gpu_layers",
    **{name: name for name in ("rpc", "most_threads")},
    **dict.fromkeys(("type", "depth", "ngram", "suffix_memory", "suffix_max_age", "n_most_mtp"), ""),
    **dict.fromkeys(("cache_disk", "cache_disk_size", "heartbeat_seconds", "rpc_timeout"), ""),
}
"""By which input of `shared.llama.start_key` each part of `Load`, but for `model` and `options`, acts on what
is kept for later starts; empty: by none."""


class Submit(BaseModel, frozen=True):
    """Continue a prompt by at most `max_tokens` (None: until the context is full, or without end).

    When its context is full the sequence ends; with `n_keep` the oldest tokens after the first `n_keep` are
    discarded instead, at most two less than the context has (see `lead.engine.context_shift`).

    No token depends on the options that follow. prediction: what the client expects the text to be. n_probs:
    at each position report the probabilities of this many tokens and of the chosen one; None: of none.
    filtered: probabilities after the filters. n_draft: verify at most this many draft tokens per step. slot:
    run in this slot only. progress: report how far the prompt has been read. checkpoint: length of a prefix
    that later requests may share; 0: not known. owner: whose recent texts drafts may be taken from, this one
    among them when it has ended; None: nobody's. keep_for: whose texts on disk (`--cache-disk`) it may go on
    from, and is one of; None: it never reaches the disk. unread: the client is shown nothing before its end.

    A sequence that an earlier engine process had begun is submitted with what that has generated:
    `tokens[n_prompt:]` (n_prompt 0: nothing). `n_cached`: as its `Started` said; None: it has not started.
    """

    type: Literal["submit"] = "submit"
    sequence: str = ""  # named by `lead.generation.sequences`
    tokens: list[int]
    sampling: SamplingParameters
    max_tokens: int | None = None
    n_keep: int | None = None
    prediction: list[int] = []
    n_probs: int | None = None
    filtered: bool = False
    n_draft: int | None = None
    cache_prompt: bool = True
    slot: int | None = None
    progress: bool = False
    checkpoint: int = 0
    owner: int | None = None
    keep_for: str | None = None
    unread: bool = False
    n_prompt: int = 0
    n_cached: int | None = None


class Cancel(BaseModel, frozen=True):
    type: Literal["cancel"] = "cancel"
    sequence: str


class SetBacks(BaseModel, frozen=True):
    """The backs that are connected now, by name. share_cores: one of them runs on this machine."""

    type: Literal["set_backs"] = "set_backs"
    names: list[str]
    share_cores: bool = False


class SetPolicy(BaseModel, frozen=True):
    """Use this policy for the depth of drafts from now on."""

    type: Literal["set_policy"] = "set_policy"
    policy: PolicyName
    depth: int


SlotAction = Literal["save", "restore", "erase"]


class ActOnSlot(BaseModel, frozen=True):
    """Save what a slot holds as the file `path`, restore it from there, or erase it; `SlotActed` answers.

    keep_for: as in `Submit`, for what is restored. There is one at a time.
    """

    type: Literal["act_on_slot"] = "act_on_slot"
    action: SlotAction
    slot: int
    path: Path = Path()
    keep_for: str | None = None


class Explain(BaseModel, frozen=True):
    """Send an `Explained`."""

    type: Literal["explain"] = "explain"


_AnyCommand = Load | Submit | Cancel | Draft | SetBacks | SetPolicy | ActOnSlot | Explain
Command = Annotated[_AnyCommand, Field(discriminator="type")]

_commands: TypeAdapter[_AnyCommand] = TypeAdapter(Command)


def decode_command(line: bytes) -> Command:
    """The command in one line."""
    return _commands.validate_json(line)
