"""The settings of the lead."""

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from lead.engine.load import DiskCacheOptions, EngineOptions, Load, LoadDraft
from lead.settings.choices import Print, SpecDecodeDetail
from lead.settings.conversation import ConversationOptions
from lead.settings.draft_model import DraftModelOptions, OwnBackOptions
from lead.settings.host_names import is_loopback, listening_host
from lead.settings.image_options import ImageOptions
from lead.settings.limits import RequestLimits
from lead.settings.sampling_defaults import SamplingDefaults
from lead.settings.security import EXPOSED, SecurityOptions
from lead.settings.served_models import ServedModels
from lead.settings.usual_options import USUAL
from lead.settings.vector_models import VectorModelOptions
from shared import cpus
from shared.llama.placement import BESIDE_GPU, CPU, FIRST_GPU
from shared.logs import LogLevel
from shared.model_files.builtin import builtin_target
from shared.model_files.file_facts import size_if_known
from shared.model_files.projector_file import projector_beside
from shared.settings.base import FileSettings
from shared.settings.llama_server_options import LLAMA_SERVER
from shared.settings.model_options import MAX_CTX, ModelOptions
from shared.settings.model_source import ModelSource
from shared.settings.options import CommaList, CpuList, OptionError, OptionGroup
from shared.settings.server_url import split_address

_BODY_WITH_IMAGES = 48 << 20
"""The default --max-body-bytes with images: an agent sends all screenshots again in each request."""
_MAX_WORKERS = 16
"""GGML_RPC_MAX_SERVERS in ggml-rpc.h."""


class RpcOptions(OptionGroup):
    """Machines that compute layers of the model: for models that no single machine holds."""

    rpc: CommaList = Field(
        (),
        description="comma-separated RPC workers (host:port). A worker is a machine that runs `lead "
        "rpc-worker` or llama.cpp's rpc-server. Workers compute the first layers of --n-gpu-layers, "
        "each in proportion to its free memory or to --tensor-split. RPC has no encryption or "
        "authentication: use loopback, a tunnel or a closed network. Needs a llama.cpp with RPC "
        "(CMAKE_ARGS=-DGGML_RPC=ON make setup)",
    )
    rpc_timeout: float = Field(
        60.0,
        gt=0,
        le=86_400,
        description="seconds to wait for an RPC worker that cannot be reached, at the start or later. "
        "Running answers wait, too",
    )

    @field_validator("rpc")
    @classmethod
    def _check_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for address in value:
            split_address(address)
        return value

    @model_validator(mode="after")
    def _check_number(self) -> Self:
        if len(self.rpc) != len(set(self.rpc)) or len(self.rpc) > _MAX_WORKERS:
            raise OptionError("rpc", f"must name at most {_MAX_WORKERS} workers, each only once")
        return self

    def check_built(self) -> None:
        """Raise ConfigError if workers are given that this build of llama.cpp cannot use."""
        if self.rpc:
            from shared.rpc import rpc_backend  # noqa: PLC0415 - imports llama.cpp

            rpc_backend.require()


class LeadSettings(FileSettings):
    """Serve a GGUF model over HTTP, with drafts from this machine and other machines.

    One machine:
      lead --model big.gguf                     then chat, or http://127.0.0.1:5555/
      lead --model big.gguf --draft-model small.gguf
    Two machines:
      lead --model big.gguf                     on the first
      lead invite --open --nearby               also on the first: prints a code
      back --model small.gguf --join CODE       on the second
    An app (OpenAI's API, among others):
      http://127.0.0.1:5555/v1                  the address for an app on this machine
      lead invite --app                         address, key and CA for an app elsewhere

    Commands, each with its own --help:
      lead models                     list, download, examine, delete models
      lead invite                     let other machines and programs join
      lead plan, bench, doctor        predict, measure or explain the speed
      lead service                    run the lead as a service
      lead generate, convert          write a text without a server; make GGUF files
      lead cache, uninstall           list or remove files on this machine
      lead rpc-worker                 compute layers for another lead
    llama-server's options and variables work, too. Variables of lead are LEAD_MODEL, LEAD_PORT, …
    """

    program = "lead"
    prefix = "LEAD_"
    dialect = LLAMA_SERVER
    usual = USUAL
    headings: ClassVar = {
        "model": "model",
        "models_dir": "several models",
        "alias": "model",
        "host": "network",
        "api_key": "keys, host names and HTTPS",
        "cpus": "computing",
        "rpc": "computing on other machines",
        "context_shift": "long texts",
        "draft_model": "speculation",
        "embedding_model": "embeddings and reranking",
        "chat_template": "conversations",
        "mmproj": "images",
        "print": "running",
        "n_predict": "sampling defaults for requests",
        "flash_attn": "computing, advanced",
        "kv_unified": "computing",
        "max_body_bytes": "limits on clients and backs",
    }

    source: ModelSource = ModelSource()
    served: ServedModels = ServedModels()
    alias: str | None = Field(
        None, description="comma-separated names of the model. Default: the name in the model's metadata"
    )
    tags: str | None = Field(None, description="comma-separated model tags, shown to clients")
    host: Annotated[str, AfterValidator(listening_host)] = Field(
        "127.0.0.1",
        description="address to listen on, such as 0.0.0.0 (all IPv4 interfaces) or :: (IPv6, too). "
        "Addresses other than loopback require keys or --insecure",
    )
    port: int = Field(5555, ge=0, le=65535, description="port to listen on; 0: any free port")
    announce: bool = Field(
        False, description="announce the lead on the local network (mDNS), for backs with --discover"
    )
    slots: bool = Field(True, description="enable the slots monitoring endpoint, /slots. It shows no text")
    slot_save_path: Path | None = Field(
        None,
        description="existing folder for saved slots (POST /slots/N?action=save and restore). Only admins "
        "can save, or anyone if the lead has no keys. Anyone who can read the files can read "
        "the texts",
    )
    spm_infill: bool = Field(
        False,
        description="/infill: use the order suffix, prefix, middle, which some models need",
    )
    metrics: bool = Field(False, description="enable the metrics endpoint for Prometheus, /metrics")
    per_request_spec_decode_metrics: SpecDecodeDetail = Field(
        "none",
        description="add vLLM's metrics.speculative_decoding to answers of /v1/chat/completions and "
        "/v1/completions: none, summary or detailed (for each step). Streams send it with the "
        "usage",
    )
    ui: bool = Field(True, description="serve the web UI (chat, backs, speculation) at /")
    security: SecurityOptions = SecurityOptions()
    cpus: CpuList | None = Field(
        None, description="CPU cores to run on, such as 0-7,16. Backs on this machine should use other cores"
    )
    compute: ModelOptions = ModelOptions()
    disk: DiskCacheOptions = DiskCacheOptions()
    workers: RpcOptions = RpcOptions()
    context_shift: bool = Field(
        False,
        description="when the context of a request is full, discard the older half of the text after the "
        "first --keep tokens and continue. Without this option the answer ends",
    )
    keep: int = Field(
        0,
        ge=-1,
        le=MAX_CTX,
        description="number of prompt tokens that --context-shift keeps, for requests without n_keep; -1: "
        "all",
    )
    drafting: DraftModelOptions = DraftModelOptions()
    own_back: OwnBackOptions = OwnBackOptions()
    vectors: VectorModelOptions = VectorModelOptions()
    engine: EngineOptions = EngineOptions()
    conversation: ConversationOptions = ConversationOptions()
    images: ImageOptions = ImageOptions()
    print: Print | None = Field(
        None,
        description="print answers and their times on this terminal: none, accepted (accepted draft tokens "
        "in color) or all (rejected draft tokens, too). Of private answers, only the times are printed. "
        "Default: accepted if stdout is a terminal, else none",
    )
    drain_seconds: float = Field(
        10.0, ge=0, le=3600, description="seconds that running requests may take to finish after SIGTERM"
    )
    drain_notice_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="seconds to accept requests after SIGTERM before the port closes. During this time "
        "/health answers 503 and /loads says draining, so a load balancer chooses another server",
    )
    takeover: bool = Field(
        False,
        description="replace the running lead of the same user on this --host and --port without losing a "
        "connection. The new lead loads its model and takes over the port. The old lead finishes "
        "its answers",
    )
    sleep_idle_seconds: float = Field(
        -1.0,
        ge=-1,
        le=31_536_000,
        description="free the model after this many seconds without a request; 0 or -1: never. The next "
        "request waits until the model is loaded again",
    )
    max_restarts: int = Field(
        3,
        ge=0,
        le=1000,
        description="maximum number of engine crashes during one request. The engine restarts after each "
        "crash and the answer continues; after more crashes the request ends with an error",
    )
    engine_timeout: float = Field(
        300.0,
        ge=0,
        le=86_400,
        description="kill and restart the engine after this many seconds without progress; 0: never. On a "
        "CPU each operation of a step counts as progress. On a GPU or an RPC worker a whole "
        "step must take less time than this",
    )
    log_level: LogLevel = Field("info", description="log level. debug includes llama.cpp's messages")
    log_json: bool = Field(False, description="log one JSON object per line")
    log_prompts: bool = Field(
        False,
        description="log the text of prompts that are not private. Without this option no text is logged",
    )
    sampling: SamplingDefaults = SamplingDefaults()
    limits: RequestLimits = RequestLimits()

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        if self.served.models_dir is not None and (self.source.model or self.source.hf_repo):
            raise OptionError("models_dir", "cannot be combined with --model or --hf-repo")
        if self.served.models_dir is not None and self.takeover:
            raise OptionError("takeover", "cannot be combined with --models-dir")
        if self.served.models_dir is not None and (name := self.vectors.asked):
            raise OptionError(name, "cannot be combined with --models-dir. Put this model into the folder")
        if self.vectors.serve_embeddings and not (self.source.model or self.source.hf_repo):
            raise OptionError("serve_embeddings", "needs --model or --hf-repo")
        if self.served.models_file is not None and self.served.models_dir is None:
            raise OptionError("models_file", "needs --models-dir")
        return self

    @model_validator(mode="after")
    def _check_images(self) -> Self:
        if self.images.mmproj and (reason := self._why_no_images):
            raise OptionError("mmproj", reason)
        return self

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if not self.security.may_listen_on(self.host):
            raise OptionError("host", EXPOSED)
        if self.announce and is_loopback(self.host):
            raise OptionError(
                "announce", "other machines cannot reach a loopback address. Set --host 0.0.0.0"
            )
        return self

    @model_validator(mode="after")
    def _check_folder(self) -> Self:
        if self.slot_save_path and not self.slot_save_path.is_dir():
            raise OptionError("slot_save_path", f"{self.slot_save_path} is not a folder")
        return self

    @model_validator(mode="after")
    def _check_cores(self) -> Self:
        if self.cpus is None or not self.own_back.is_wanted:
            return self
        if self.own_back.back_cpus is None:
            # A child process of a pinned process is pinned to the same cores.
            raise OptionError("back_cpus", "required with --cpus and --back")
        if shared := cpus.parse_cpus(self.cpus) & cpus.parse_cpus(self.own_back.back_cpus):
            raise OptionError(
                "back_cpus",
                f"must not overlap --cpus, because both programs busy-wait. Shared cores: {sorted(shared)}",
            )
        return self

    def aliases(self, own: str) -> tuple[str, ...]:
        """Return the model's names for clients, sorted; by default `own`, the name in its metadata."""
        return _split(self.alias) or (own,)

    @property
    def tag_names(self) -> tuple[str, ...]:
        return _split(self.tags)

    @property
    def model_path(self) -> Path:
        """The file of the model to serve; without --model, the small model that ships with llama-duo. Raises
        ConfigError.
        """
        # not resolved: the parts of a model from the hub are symbolic links with the right names
        return self.source.model.absolute() if self.source.model else builtin_target()

    @property
    def back_command(self) -> str:
        """The command of a back for this lead, without the address. The demo model has a draft model that
        `back` finds.
        """
        is_demo = not (self.source.model or self.source.hf_repo or self.served.models_dir)
        return "back" if is_demo else "back --model MODEL"

    def with_model(self) -> Self:
        """Return the settings with a model that exists, and its projector. Raises ConfigError."""
        source = self.source.located(with_projector=self.finds_projector)
        return self.model_copy(update={"source": source, "images": self.images_of(source.model)})

    def images_of(self, model: Path | None) -> ImageOptions:
        """Return the image options, with the projector found beside `model` if no option names one."""
        if model is None or self.source.hf_repo is None or not self.finds_projector:
            return self.images
        return self.images.model_copy(update={"mmproj": self.projector_of(model)})

    def projector_of(self, model: Path) -> Path | None:
        """Return the projector found for `model`, if no option names one; None: there is no usable
        projector.
        """
        return projector_beside(model, self.max_image_rows) if self.finds_projector else None

    @property
    def max_image_rows(self) -> int:
        """The maximum number of an image's rows that fit into one pass."""
        return min(self.compute.ubatch_size, self.compute.batch_size or self.compute.ubatch_size)

    @property
    def finds_projector(self) -> bool:
        """True if the lead looks for a projector, because none was named."""
        images = self.images
        return images.mmproj_auto and not (images.mmproj or self._why_no_images)

    @property
    def _why_no_images(self) -> str:
        """The reason why images cannot be combined with other options; empty: they can."""
        if self.context_shift:
            return "cannot be combined with --context-shift"
        if self.compute.exact == "on":
            return "cannot be combined with --exact"
        return ""

    def located(self) -> Self:
        """Return the settings with existing model files, which are checked or downloaded. Raises
        ConfigError.
        """
        self.workers.check_built()
        return self.with_model().model_copy(
            update={
                "drafting": self.drafting.located(self.source),
                "own_back": self.own_back.located(self.source),
                "vectors": self.vectors.located(),
            }
        )

    def alone(self) -> Self:
        """Return a copy with which only this program and its back can reach the lead, whatever variables and
        options are set.
        """
        return self.model_copy(
            update={
                "host": "127.0.0.1",
                "port": 0,
                "announce": False,
                "ui": False,
                "metrics": False,
                "print": "none",
                "security": SecurityOptions(),
            }
        )

    @property
    def n_threads(self) -> int:
        """The number of the target's threads. Unless cores were chosen, one core is left to HTTP and a small
        back.
        """
        return self.compute.threads or max(1, cpus.n_physical() - (0 if self.cpus else 1))

    @property
    def max_threads(self) -> int:
        """The maximum number of threads to try; 0 if threads or cores were chosen."""
        said = self.compute.threads or self.compute.threads_batch or self.cpus
        return 0 if said else cpus.n_physical()

    @property
    def suffix_mib(self) -> int:
        """The MiB for recent texts (--suffix-memory); by default 0 if clients without keys would
        share them.
        """
        if self.engine.suffix_memory is not None:
            return self.engine.suffix_memory
        return 0 if self.security.insecure and not self.security.has_keys else 32

    @property
    def model_options(self) -> ModelOptions:
        """The options to load the model with, including the chosen number of threads."""
        return self.compute.model_copy(update={"threads": self.n_threads})

    @property
    def beside_bytes(self) -> dict[str, int]:
        """The bytes that the processes beside the engine take, by place (`shared.llama.devices.located`)."""
        images, vectors = self.images, self.vectors
        found = Counter({CPU: images.cache_bytes})
        found[FIRST_GPU if images.mmproj_offload else CPU] += images.encoder_bytes(self.compute.flash_attn)
        found[FIRST_GPU if vectors.embedding_gpu_layers else CPU] += vectors.n_bytes
        if vectors.serve_embeddings:
            found[self._place_of_second_weights] += size_if_known(self.source.model)
        return {place: n for place, n in found.items() if place and n}

    @property
    def _place_of_second_weights(self) -> str:
        """The place of the second copy of the weights for --serve-embeddings; "": the engine's copy is
        shared.
        """
        if self.vectors.embedding_gpu_layers:
            return FIRST_GPU
        if self.compute.load_mode in {"none", "dio"}:
            return CPU
        return "" if self.compute.n_gpu_layers == 0 else BESIDE_GPU

    def load_command(self, model: Path, cache_ram: int | None = None, draft_cache_ram: int = 0) -> Load:
        """Return the engine's command to load the model and its drafters; the settings must be `located`.

        model: the target's file. cache_ram, draft_cache_ram: the maximum MiB of earlier texts that the target
        and a draft model in the engine keep; None: as in the options.
        """
        options = self.model_options
        return Load(
            model=model,
            options=options if cache_ram is None else options.model_copy(update={"cache_ram": cache_ram}),
            draft=self.load_draft(draft_cache_ram),
            mtp=self.drafting.mtp,
            max_mtp=self.drafting.draft_max,
            max_threads=self.max_threads,
            taken=self.beside_bytes,
            **dict(self.workers),
            **dict(self.disk),
            **dict(self.engine) | {"suffix_memory": self.suffix_mib},
        )

    def load_draft(self, cache_ram: int = 0) -> LoadDraft | None:
        """Return the engine's command to load a draft model; None if none is set.

        The settings must be `located`. cache_ram: the maximum MiB of earlier texts that it keeps.
        """
        drafting = self.drafting
        if drafting.draft_model is None:
            return None
        options = drafting.model_options(self.model_options, cache_ram)
        return LoadDraft(
            model=drafting.draft_model,
            options=options,
            n_max=drafting.draft_max,
            fixed_threads=drafting.threads_draft > 0,
        )

    @property
    def request_limits(self) -> RequestLimits:
        """The limits on requests. The default maximum size of a body has room for images."""
        may_see = self.images.mmproj or self.served.models_dir
        if not may_see or "max_body_bytes" in self.limits.model_fields_set:
            return self.limits
        return self.limits.model_copy(update={"max_body_bytes": _BODY_WITH_IMAGES})

    @property
    def printing(self) -> Print:
        return self.print or ("accepted" if sys.stdout.isatty() else "none")


class DoctorSettings(LeadSettings):
    """Find out why a running lead is not faster. Request a long answer from it first.

    lead doctor --model big.gguf --port 5555     the options of the running lead
    """

    program = "lead doctor"


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in (text or "").split(",")} - {""}))
