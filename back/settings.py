"""The settings of a back."""

import platform
import re
import ssl
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import CliSuppress

from shared import cpus
from shared.discovery import choose, find_leads
from shared.keys import read_key
from shared.logs import LogLevel
from shared.protocol import MAX_DRAFT_TOKENS
from shared.settings.base import CpuList, FileSettings, program_config
from shared.settings.llama_server_options import LLAMA_SERVER, Slots, Threads
from shared.settings.model_options import MAX_SLOTS, ComputeOptions, ModelOptions
from shared.settings.model_source import ModelSource
from shared.tls import pinning, trusting

DISCOVER_SECONDS = 10.0
"""How long `--discover` looks for a lead."""
_HOW_TO_WRITE = "write it as in http://192.168.1.20:5555"
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class BackSettings(ComputeOptions, ModelSource, FileSettings):
    """Draft for a lead: run a small model ahead of its big one, on this machine's idle cores or GPU.

        back                                     the built-in draft model, for the demo's lead
        back --model 8B.gguf --threads 16 --lead http://host:5555
        back doctor [options]                             why there is no speed-up

    The model must have the lead's tokenizer: take a smaller one of the same family. It may be started before
    the lead and stopped at any time. A back sees the text of the answers it drafts for.
    Every option is also an environment variable: BACK_MODEL, BACK_LEAD, BACK_THREADS and so on. What
    llama-server has, too, may be spelled as there: -ngl 99, LLAMA_ARG_N_GPU_LAYERS=99.
    """

    model_config = program_config("back")
    dialect = LLAMA_SERVER
    groups: ClassVar[dict[str, str]] = {
        "model": "drafting",
        "n_gpu_layers": "computing",
        "flash_attn": "computing, for those who tune",
        "lead": "drafting",
        "cpus": "computing",
        "log_level": "running",
    }

    model: Path | None = Field(None, description="the GGUF file to draft with; without it the built-in one")
    lead: str = Field("http://127.0.0.1:5555", description="where the lead listens")
    discover: bool = Field(
        False,
        description="look on the local network for a lead with --announce, instead of --lead; "
        "whoever announces one there sees the key, unless --ca-file says who vouches for it",
    )
    key: SecretStr | None = Field(
        None, description="the lead's key for backs; BACK_KEY or a file keeps it out of `ps`"
    )
    key_file: Path | None = Field(None, description="a file that holds the key")
    ca_file: Path | None = Field(
        None, description="who vouches for a lead at https://…: certificates (PEM) instead of the system's"
    )
    pinned_certificate: CliSuppress[Path | None] = Field(
        None, description="the lead's own certificate, trusted under any name: for a lead's own back"
    )
    ping_seconds: float = Field(
        20.0,
        gt=0,
        le=3600,
        description="the lead is asked so often whether it is still there, and given as long to answer",
    )
    name: str | None = Field(None, description="how the lead calls this back; without it the host's name")
    n_ahead: int = Field(
        16, ge=1, le=MAX_DRAFT_TOKENS, description="how many tokens to draft past the lead's text"
    )
    n_branches: int = Field(
        3,
        ge=0,
        le=8,
        description="side branches to prepare for each sequence with time to spare: what follows if the lead "
        "leaves the draft",
    )
    parallel: Slots = Field(
        4, ge=1, le=MAX_SLOTS, description="how many sequences to follow at the same time"
    )
    ctx_size: int = Field(
        0,
        ge=0,
        le=1 << 24,
        description="tokens of context for all sequences together; 0: as the model was trained, up to 16384; "
        "a text longer than its share is drafted from its end",
    )
    threads: Threads = Field(
        0,
        ge=0,
        le=1024,
        description="compute threads; 0: one per core of --cpus, or one if the lead is on this machine, "
        "or all physical cores",
    )
    cpus: CpuList | None = Field(
        None, description="cores to run on, as in 0-7,16; not those of a lead beside it"
    )
    exit_with_stdin: CliSuppress[bool] = Field(
        False, description="end when standard input does: a lead's own back must not outlive it"
    )
    log_level: LogLevel = Field("info", description="debug shows llama.cpp's own messages")
    log_json: bool = Field(False, description="log a JSON object a line")

    @field_validator("lead")
    @classmethod
    def _check_lead(cls, value: str) -> str:
        """Accept what people paste: OpenAI's clients want `/v1` at the end."""
        try:
            parts = urlsplit(value)
            sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
            (parts.hostname or "").encode("idna")
        except ValueError as error:  # of the host or the port
            raise ValueError(f"{error}; {_HOW_TO_WRITE}") from None
        if not sound or parts.query or parts.fragment:
            raise ValueError(_HOW_TO_WRITE)
        # urlsplit has made the scheme lower-case, as what is made of this expects it.
        return urlunsplit(parts).rstrip("/").removesuffix("/v1").rstrip("/")

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        """llama.cpp aborts where a cache has less than a cell for each line."""
        n_lines = self.parallel * (1 + self.n_branches_each)
        if 0 < self.ctx_size < n_lines:
            raise ValueError(
                f"--ctx-size {self.ctx_size} is too small for --parallel {self.parallel} and --n-branches "
                f"{self.n_branches}: they need {n_lines} at the very least, and some hundred for each text"
            )
        return self

    def discovered(self) -> Self:
        """With the lead that announces itself, if one is to be looked for.

        Raises NoLeadError for none, ConfigError for several.

        A back that knows who vouches for its lead shows its key to no other.
        """
        if not self.discover:
            return self
        found = choose(find_leads(DISCOVER_SECONDS), with_https=self.ca_file is not None)
        return self.model_copy(update={"lead": found.url})

    @property
    def websocket_url(self) -> str:
        """Where to dial."""
        return "ws" + self.lead.removeprefix("http") + "/v1/speculation"

    def read_key(self) -> str | None:
        """The key to show the lead; raises ConfigError."""
        return read_key(self.key, self.key_file)

    def tls(self) -> ssl.SSLContext | None:
        """Whom to trust at https://…; None for http. Raises ConfigError."""
        if not self.lead.startswith("https:"):
            return None
        return pinning(self.pinned_certificate) if self.pinned_certificate else trusting(self.ca_file)

    @property
    def n_threads(self) -> int:
        """Beside a lead on the same machine one thread: two programs that spin on the same cores crawl."""
        if self.threads:
            return self.threads
        beside_lead = urlsplit(self.lead).hostname in _LOOPBACK and not self.cpus
        return 1 if beside_lead else cpus.n_physical()

    @property
    def model_options(self) -> ModelOptions:
        """How to load the model, with the number of threads chosen."""
        chosen = {name: getattr(self, name) for name in ComputeOptions.model_fields}
        return ModelOptions(**chosen | {"threads": self.n_threads})

    @property
    def n_branches_each(self) -> int:
        """As many as are asked for and fit into the slots that llama.cpp has: each line takes one."""
        return min(self.n_branches, MAX_SLOTS // self.parallel - 1)

    @property
    def own_name(self) -> str:
        """A name that the protocol allows."""
        return re.sub(r"[^A-Za-z0-9._:-]", "-", self.name or platform.node())[:64] or "back"
