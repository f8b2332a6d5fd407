"""The settings of the lead."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from lead.chat.options import ChatOptions, ReasoningFormat
from lead.engine.commands import PolicyName
from lead.http.middleware.hosts import is_loopback
from lead.http.middleware.keys import HOW_TO_MAKE_ONE
from lead.settings.limits import Bounds
from lead.settings.model_names import ModelNames
from lead.settings.sampling_defaults import SamplingDefaults
from lead.settings.security import DoorSettings
from shared import cpus
from shared.errors import ConfigError
from shared.logs import LogLevel
from shared.models.builtin import builtin_draft
from shared.models.hub import HubModel
from shared.settings.base import CpuList, FileSettings, program_config
from shared.settings.llama_server_options import LLAMA_SERVER, GpuLayers
from shared.settings.model_options import ModelOptions
from shared.settings.model_source import ModelSource

Print = Literal["none", "accepted", "all"]
_BUILTIN = Path("builtin")


def _names_back(given: Mapping[str, Any]) -> bool:
    return any(given.get(name) is not None for name in ("back", "back_hf_repo"))


class LeadSettings(ModelOptions, Bounds, SamplingDefaults, DoorSettings, ModelSource, FileSettings):
    """Serve a GGUF model over HTTP (OpenAI's API), faster with backs that draft for it.

        lead                                           the built-in demo model
        lead --model 70B.gguf --n-gpu-layers 99        a model of yours
        lead --model 70B.gguf --host 0.0.0.0 --keys-file keys     for backs and clients on other machines
        lead --model 70B.gguf --back 1B.gguf           with a back of its own on this machine
        lead doctor [options]                          why there is no speed-up

    Every option is also an environment variable: LEAD_MODEL, LEAD_PORT, LEAD_N_GPU_LAYERS and so on. What
    llama-server has, too, may be spelled as there: -ngl 99, LLAMA_ARG_N_GPU_LAYERS=99.
    """

    model_config = program_config("lead")
    dialect = LLAMA_SERVER
    groups: ClassVar[dict[str, str]] = {
        "model": "model",
        "alias": "model",
        "host": "address",
        "api_key": "keys, names and pages",
        "n_gpu_layers": "computing",
        "back": "speculation",
        "chat_template": "conversations",
        "print": "running",
        "n_predict": "sampling, where a request does not say otherwise",
        "flash_attn": "computing, for those who tune",
        "max_body_bytes": "bounds on what clients and backs may ask for",
    }

    model: Path | None = Field(
        None,
        description="the GGUF file to serve; without it the demo's: a small model at a big one's cost",
    )
    alias: str | None = Field(
        None, description="the name that clients see, or several with commas; without it the model's own"
    )
    tags: str | None = Field(None, description="words for clients to find the model by, with commas")
    host: str = Field(
        "127.0.0.1", description="address to listen on; 0.0.0.0 lets other machines in, who need a key"
    )
    port: int = Field(5555, ge=0, le=65535, description="port to listen on; 0: any free one")
    announce: bool = Field(
        False, description="tell the local network where the lead is, for backs with --discover"
    )
    slots: bool = Field(True, description="say at /slots what each slot is doing, without any text")
    metrics: bool = Field(False, description="figures for Prometheus at /metrics")
    ui: bool = Field(True, description="serve a page to chat and to look at what backs are worth, at /")
    cpus: CpuList | None = Field(
        None, description="cores to run on, as in 0-7,16; give backs on this machine others"
    )
    back: Path | None = Field(
        None,
        description="a small GGUF file of the same family, to draft with in a back of the lead's own on this "
        "machine; builtin: the demo's",
    )
    back_hf_repo: str | None = Field(
        None, description="a model from the Hugging Face hub, USER/REPO[:QUANT], in place of --back"
    )
    back_threads: int = Field(
        0, ge=0, le=1024, description="that back's compute threads; 0: one per core of --back-cpus, or one"
    )
    back_gpu_layers: GpuLayers = Field(-1, ge=-1, description="layers that back keeps on the GPU; -1: all")
    back_cpus: CpuList | None = Field(None, description="that back's cores, as in 7 or 6-7; none of --cpus")
    policy: PolicyName = Field(
        "adaptive",
        description="how many draft tokens to verify: adaptive learns what is fastest; for comparison, fixed "
        "takes up to --depth if they are there, sync waits for --depth at every step, off takes none",
    )
    depth: int = Field(4, ge=0, le=32, description="draft tokens per step of --policy fixed and sync")
    ngram: bool = Field(True, description="also draft from the text itself, where it repeats; costs no model")
    calibrate: bool = Field(
        True, description="time steps of several sizes after loading, until the first request"
    )
    chat_template: str | None = Field(
        None,
        description="instead of the model's own: a name that llama.cpp knows (chatml, llama3 …) or Jinja",
    )
    chat_template_file: Path | None = Field(None, description="the same, read from a file")
    chat_template_kwargs: str | None = Field(
        None, description='variables of the chat template, as in {"enable_thinking": false}'
    )
    reasoning_format: ReasoningFormat = Field(
        "auto", description="auto and deepseek give reasoning apart from the answer; none leaves it there"
    )
    reasoning: Literal["on", "off", "auto"] = Field(
        "auto", description="whether the model reasons, for templates that can choose (enable_thinking)"
    )
    prefill_assistant: bool = Field(
        True, description="continue an assistant's message at the end of a conversation"
    )
    print: Print | None = Field(
        None,
        description="show text as it is generated: none, accepted (drafted tokens in colour), "
        "all (rejected ones too); private requests' are not shown; without it: accepted on a terminal",
    )
    drain_seconds: float = Field(
        10.0, ge=0, le=3600, description="how long running answers may go on after SIGTERM"
    )
    log_level: LogLevel = Field("info", description="debug shows llama.cpp's own messages")
    log_json: bool = Field(False, description="log a JSON object a line")
    log_prompts: bool = Field(False, description="log the text of prompts, too; without it no text is logged")

    @field_validator("host")
    @classmethod
    def _check_exposure(cls, value: str, info: ValidationInfo) -> str:
        if is_loopback(value) or info.data.get("insecure") or any(map(info.data.get, cls.key_fields)):
            return value
        raise ValueError(
            "whoever reaches this address could use the lead and read along: give --api-key, --back-key or "
            f"--keys-file ({HOW_TO_MAKE_ONE}), or say --insecure"
        )

    @field_validator("announce")
    @classmethod
    def _check_can_be_reached(cls, value: bool, info: ValidationInfo) -> bool:
        if value and is_loopback(info.data.get("host", "")):
            raise ValueError("nobody else reaches a lead on loopback: give --host 0.0.0.0, too")
        return value

    @field_validator("back_hf_repo")
    @classmethod
    def _check_one_back(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            HubModel.parse(value)
            if info.data.get("back") is not None:
                raise ValueError("there is a --back, too: name one of them")
        return value

    @field_validator("back_threads", "back_gpu_layers", "back_cpus")
    @classmethod
    def _check_back_is_there(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].default
        if value != default and not _names_back(info.data):
            raise ValueError("there is no back to set it for: name its model with --back")
        return value

    @field_validator("back_cpus")
    @classmethod
    def _check_back_has_own_cores(cls, value: str | None, info: ValidationInfo) -> str | None:
        own = info.data.get("cpus")
        if not _names_back(info.data) or own is None:
            return value
        if value is None:
            # The child of a pinned process is pinned to the same cores.
            raise PydanticCustomError("missing", "with --cpus and --back, say which cores the back gets")
        if shared := cpus.parse_cpus(own) & cpus.parse_cpus(value):
            raise ValueError(
                f"two programs that spin on the same cores crawl: --cpus has {sorted(shared)}, too"
            )
        return value

    @field_validator("chat_template_file")
    @classmethod
    def _check_one_template(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("chat_template") is not None:
            raise ValueError("give --chat-template or --chat-template-file, not both")
        return value

    @field_validator("chat_template_kwargs")
    @classmethod
    def _check_is_object(cls, value: str | None) -> str | None:
        try:
            good = value is None or isinstance(json.loads(value), dict)
        except ValueError:
            good = False
        if not good:
            raise ValueError("it is a JSON object")
        return value

    @property
    def chat_template_source(self) -> str | None:
        """The chosen chat template; raises ConfigError if its file cannot be read."""
        if self.chat_template_file is None:
            return self.chat_template
        try:
            return self.chat_template_file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"cannot read the chat template {self.chat_template_file}: {error}") from error

    def names(self, own: str) -> ModelNames:
        """What clients call the model, which calls itself `own`."""
        return ModelNames.read(self.alias, self.tags, own)

    @property
    def chat_options(self) -> ChatOptions:
        """What requests do not say about conversations."""
        variables = json.loads(self.chat_template_kwargs or "{}")
        # As in llama-server: a template that can reason does, also one that takes "not said" for "no".
        variables = {"enable_thinking": self.reasoning != "off"} | variables
        return ChatOptions(
            variables, self.reasoning_format, self.prefill_assistant, verbose=self.log_level == "debug"
        )

    def with_back_located(self) -> Self:
        """The same settings with the model of the lead's own back as a file, downloaded if need be.

        Raises ConfigError.
        """
        if self.back_hf_repo is None:
            return self
        path = self.fetched(HubModel.parse(self.back_hf_repo))
        return self.model_copy(update={"back": path, "back_hf_repo": None})

    @property
    def has_back(self) -> bool:
        """Whether the lead starts one of its own."""
        return self.back is not None or self.back_hf_repo is not None

    @property
    def back_model(self) -> Path | None:
        """What the lead's own back drafts with; raises ConfigError in an installation without the demo's."""
        if self.back == _BUILTIN:
            return builtin_draft()
        return self.back and self.back.absolute()

    @property
    def n_back_threads(self) -> int:
        """One, because a back beside a lead shares its cores, unless they were chosen by hand (0)."""
        return self.back_threads or (0 if self.back_cpus else 1)

    @property
    def n_threads(self) -> int:
        """One core is left to HTTP (and to a small back), unless the cores were chosen by hand."""
        if self.threads:
            return self.threads
        return max(1, cpus.n_physical() - (0 if self.cpus else 1))

    @property
    def model_options(self) -> ModelOptions:
        """How to load the model, with the number of threads chosen."""
        chosen = {name: getattr(self, name) for name in ModelOptions.model_fields}
        return ModelOptions(**chosen | {"threads": self.n_threads})

    @property
    def printing(self) -> Print:
        """What to show on standard output."""
        return self.print or ("accepted" if sys.stdout.isatty() else "none")
