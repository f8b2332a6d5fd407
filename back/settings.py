"""The settings of a back."""

import logging
import platform
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import CliSuppress

from shared import cpus
from shared.diagnostics.findings import count
from shared.drafting.drafter_options import N_FURTHER_STATES
from shared.key_file import read_key
from shared.logs import LogLevel
from shared.pairing.discovery import FoundLead, choose, find_leads, usable
from shared.pairing.joined_lead import JOIN_HELP, JoinedLead
from shared.protocol import MAX_DRAFT_TOKENS
from shared.settings.base import FileSettings
from shared.settings.llama_server_options import LLAMA_SERVER
from shared.settings.model_options import (
    DEFAULT_CTX,
    MAX_CTX,
    MAX_SLOTS,
    MAX_THREADS,
    ComputeOptions,
    ModelOptions,
)
from shared.settings.model_source import ModelSource
from shared.settings.options import CommaList, CpuList, SlotCount, ThreadCount
from shared.settings.server_url import server_url
from shared.tls import pinning, trusting

log = logging.getLogger("back")

DISCOVER_SECONDS = 10.0
"""The time for which `--discover` listens to announcements."""
_MAX_LEADS = 16
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class BackComputeOptions(ComputeOptions):
    """The lead's compute options, with descriptions that fit a back."""

    parallel: SlotCount = Field(
        4, ge=1, le=MAX_SLOTS, description="number of sequences to draft for in parallel, for each lead"
    )
    ctx_size: int = Field(
        0,
        ge=0,
        le=MAX_CTX,
        description="size of the context in tokens, for all sequences together; 0: the model's training "
        f"context times --parallel, at most {DEFAULT_CTX}. For a longer text, the back uses "
        "only the end",
    )
    threads: ThreadCount = Field(
        0,
        ge=0,
        le=MAX_THREADS,
        description="number of CPU threads; 0: all physical cores of --cpus. Default without --cpus: one "
        "if --lead is on this machine, else all physical cores",
    )


class BackSettings(FileSettings):
    """Draft tokens for a lead: run a small model ahead of the lead's large one (speculative decoding).

    Run back on another machine, or give it cores or a GPU of its own:
      back --model small.gguf --join CODE         a code from `lead invite`, needed once
      back --model small.gguf                     from then on
      back --model small.gguf --lead host:5555    a lead that listens on its network
      back                                        the draft model of the lead's demo model

    Commands, each with its own --help:
      back service                  run the back as a service
      back doctor                   find out why the lead is not faster

    Use a smaller model of the lead's family. A back translates drafts of a model with another tokenizer.
    A back can start before the lead and stop at any time. It receives the text of the requests that it
    drafts for.
    llama-server's options and variables work, too. Variables of back are BACK_MODEL, BACK_LEAD, …
    """

    program = "back"
    prefix = "BACK_"
    dialect = LLAMA_SERVER
    usual: ClassVar = {
        "model": "GGUF file of the draft model",
        "hf_repo": "model on Hugging Face: USER/REPO:QUANT",
        "lead": "address of the lead: host:port or a URL",
        "join": "code from `lead invite`, needed once",
        "discover": "find a lead that runs with --announce",
        "key_file": "file with the lead's key for backs",
        "name": "name of this back for the lead",
        "n_ahead": "maximum tokens to draft ahead",
        "parallel": "parallel texts to draft for",
        "cpus": "CPU cores, such as 0-7,16",
        "threads": "CPU threads; default: 1 beside the lead, else all cores",
        "n_gpu_layers": "layers in VRAM; default: as many as fit",
        "device": "GPUs to use (--list-devices)",
        "ctx_size": "context of all texts together, in tokens",
        "log_level": "debug, info, warning, error",
        "check": "check whether the model fits, then exit",
        "config": "TOML file with options",
    }
    headings: ClassVar = {
        "model": "drafting",
        "cpus": "computing",
        "flash_attn": "computing, advanced",
        "log_level": "running",
    }

    source: ModelSource = ModelSource()
    lead: CommaList = Field(
        ("http://127.0.0.1:5555",),
        min_length=1,
        max_length=_MAX_LEADS,
        description="address of the lead: host:port or a URL. Repeat the option to draft for several "
        "leads whose models have the same vocabulary. The leads share this back's time; an "
        "idle lead takes none",
    )
    discover: bool = Field(
        False,
        description="instead of --lead, find a lead on the local network that runs with --announce. Any "
        "machine can announce a lead and would receive the key. With --ca-file the back "
        "verifies the lead first",
    )
    discover_all: bool = Field(
        False,
        description="draft for all leads on the local network that are announced when the back starts",
    )
    join: str | None = Field(None, description=JOIN_HELP % "lead invite")
    key: SecretStr | None = Field(
        None,
        description="the lead's key for backs. The variable BACK_KEY and --key-file hide the key from "
        "process listings",
    )
    key_file: Path | None = Field(None, description="file with the lead's key for backs")
    ca_file: Path | None = Field(
        None,
        description="file with CA certificates (PEM) that verify a lead at https://…, instead of the "
        "system's certificates. It can be the lead's self-signed certificate",
    )
    pinned_certificate_file: CliSuppress[Path | None] = Field(
        None,
        description="the lead's certificate, trusted under any name. A lead sets this option for "
        "its own back",
    )
    ping_seconds: float = Field(
        20.0,
        gt=0,
        le=3600,
        description="interval between pings to the lead, and the maximum time for a reply",
    )
    name: str | None = Field(
        None,
        description="name of this back in the lead's log and metrics. If this machine has joined under "
        "another name, that name comes first (laptop:NAME). Default: the host name",
    )
    n_ahead: int = Field(
        16,
        ge=1,
        le=MAX_DRAFT_TOKENS,
        description="maximum number of tokens to draft ahead of the lead. The lead can ask for fewer",
    )
    n_branches: int = Field(
        16,
        ge=0,
        le=64,
        description="maximum number of side branches per sequence. A side branch is an alternative draft, "
        "used if the lead rejects a token of the main branch. The back drafts only side "
        "branches that pay",
    )
    cpus: CpuList | None = Field(
        None, description="CPU cores to run on, such as 0-7,16. A lead on this machine should use other cores"
    )
    compute: BackComputeOptions = BackComputeOptions()
    log_level: LogLevel = Field("info", description="log level. debug includes llama.cpp's messages")
    log_json: bool = Field(False, description="log one JSON object per line")
    _is_joined: bool = PrivateAttr(default=False)

    @field_validator("lead")
    @classmethod
    def _check_leads(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(server_url(each) for each in urls))

    @model_validator(mode="after")
    def _check_context(self) -> Self:
        """Check that the cache has a cell for each slot, because llama.cpp aborts otherwise."""
        compute, n_slots = self.compute, self.n_slots
        if self.n_parallel > MAX_SLOTS:
            raise ValueError(
                f"--parallel {compute.parallel} for {count(len(self.lead), 'lead')} exceeds the maximum of "
                f"{MAX_SLOTS} in total. Lower --parallel"
            )
        if (self.discover or self.discover_all) and len(self.lead) > 1:
            raise ValueError("--discover cannot be combined with --lead")
        if 0 < compute.ctx_size < n_slots:
            raise ValueError(
                f"--ctx-size {compute.ctx_size} is too small for --parallel {compute.parallel} and "
                f"--n-branches {self.n_branches}. The minimum is {n_slots}, but a sequence should "
                "have a few hundred tokens"
            )
        return self

    def joined(self) -> Self:
        """Return the settings with the lead of `--join` or of an earlier pairing; raises ConfigError.

        The settings are unchanged if leads are named or searched for.
        """
        if self.join is None and (self.discover or self.discover_all or "lead" in self.model_fields_set):
            return self
        lead = JoinedLead.find("back", self.own_name, self.join)
        if lead is None:
            return self
        return self._with_joined(lead)

    def _with_joined(self, lead: JoinedLead) -> Self:
        found = {
            "lead": (lead.url,),
            "key": lead.key,
            "pinned_certificate_file": lead.certificate,
            "name": self.name or lead.name or None,
        }
        joined = self.model_copy(update=found)
        joined._is_joined = True  # noqa: SLF001 - of this class
        return joined

    @property
    def is_joined(self) -> bool:
        """True if the lead is identified by the key of its CA, so that no other machine can take
        its address.
        """
        return self._is_joined

    @property
    def has_default_lead(self) -> bool:
        """True if no lead was named, found or joined: the lead is expected on this machine."""
        return "lead" not in self.model_fields_set

    def located(self) -> Self:
        """Return the settings with the path of an existing model file, downloaded if needed.

        Raises ConfigError.
        """
        return self.model_copy(update={"source": self.source.located()})

    def discovered(self, *, again: bool = False) -> Self:
        """Return the settings with the URLs of announced leads if `discover` or `discover_all` is set, or
        with the present address of a joined lead.

        again: if several leads are found, prefer this back's former lead. With a `ca_file` only leads with
        HTTPS count, so that no other lead gets the key. Raises NoLeadError, SeveralLeadsError.
        """
        if again and self._is_joined and (lead := JoinedLead.find("back", self.own_name, None)):
            return self._with_joined(lead)
        if not (self.discover or self.discover_all):
            return self
        found, with_https = find_leads(DISCOVER_SECONDS), self.ca_file is not None
        if self.discover_all:
            return self._with_leads(usable(found, with_https=with_https))
        return self.with_lead(choose(found, with_https=with_https, former=self.url if again else None).url)

    def _with_leads(self, found: Sequence[FoundLead]) -> Self:
        """Return the settings with as many of these leads as the back can draft for."""
        n_max = min(_MAX_LEADS, MAX_SLOTS // self.compute.parallel)
        leads, others = found[:n_max], found[n_max:]
        log.info("drafting for all announced leads: %s", ", ".join(map(str, leads)))
        if others:
            log.warning(
                "not drafting for %s: with --parallel %d, %d leads are the maximum",
                ", ".join(map(str, others)),
                self.compute.parallel,
                n_max,
            )
        return self.model_copy(update={"lead": tuple(each.url for each in leads)})

    @property
    def url(self) -> str:
        """The URL of the only or first lead."""
        return self.lead[0]

    def with_lead(self, url: str) -> Self:
        return self.model_copy(update={"lead": (url,)})

    @property
    def websocket_url(self) -> str:
        return "ws" + self.url.removeprefix("http") + "/v1/speculation"

    def read_key(self) -> str | None:
        """Return the key to send to the lead; raises ConfigError."""
        return read_key(self.key, self.key_file)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context that verifies a lead at https://…; None for http. Raises ConfigError."""
        if not self.url.startswith("https:"):
            return None
        return (
            pinning(self.pinned_certificate_file) if self.pinned_certificate_file else trusting(self.ca_file)
        )

    @property
    def n_threads(self) -> int:
        """The number of compute threads.

        1 beside a lead on the same machine, because two programs that busy-wait slow each other down.
        """
        if self.compute.threads:
            return self.compute.threads
        hosts = {urlsplit(each).hostname for each in self.lead}
        beside_lead = bool(hosts & _LOOPBACK) and not self.cpus
        return 1 if beside_lead else cpus.n_physical()

    @property
    def model_options(self) -> ModelOptions:
        """The options to load the model with, including the number of threads.

        Caches of sliding windows are kept in full: a draft may be rejected many decodes later, when the
        window has moved on.
        """
        chosen = {"threads": self.n_threads, "parallel": self.n_parallel, "swa_full": True}
        return ModelOptions(**self.compute.model_dump() | chosen)

    @property
    def n_parallel(self) -> int:
        """The number of sequences of all leads together; each lead may use `--parallel` of them."""
        return self.compute.parallel * len(self.lead)

    @property
    def n_branches_each(self) -> int:
        """The number of side branches per sequence: --n-branches, or fewer if llama.cpp has too few slots.

        A model with sliding windows needs two slots for each branch (`WindowGuard`).
        """
        return max(0, min(self.n_branches, MAX_SLOTS // 2 // self.n_parallel - 1))

    @property
    def n_slots(self) -> int:
        """The number of KV cache slots: one for each main branch, one for each side branch."""
        return self.n_parallel * (1 + self.n_branches_each)

    @property
    def n_step_checkpoints(self) -> int:
        """The number of states per slot that a recurrent draft model keeps, to undo decodes."""
        return self.n_ahead + N_FURTHER_STATES

    @property
    def own_name(self) -> str:
        """The name to send to the lead, with only characters that the protocol allows."""
        return re.sub(r"[^A-Za-z0-9._:-]", "-", self.name or platform.node())[:64] or "back"


class BackDoctorSettings(BackSettings):
    """Find out why the lead is not faster. Request a long answer from the lead first.

    back doctor --model small.gguf     the options of the running back
    """

    program = "back doctor"
