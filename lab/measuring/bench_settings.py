"""The settings of `lead bench`: the lead's, the prompts, and the servers to measure."""

import dataclasses
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from lab.measuring.questions import BUILT_IN
from lab.planning.plan_settings import ComparisonSettings
from shared.settings.command_line import Spelling
from shared.settings.llama_server_options import LLAMA_SERVER
from shared.settings.options import CommaList, OptionError
from shared.settings.server_url import server_url

_PLOTS = (".png", ".svg", ".pdf")


class BenchSettings(ComparisonSettings):
    """Measure the speed of a model without drafts and with each possible source of drafts.

        lead bench --model 70B.gguf --draft-model 1B.gguf --prompts human-eval
        lead bench --model 70B.gguf --draft-model 1B.gguf --draft-model 3B.gguf --plot speed.png
        lead bench --model 8B.gguf --prompts gsm8k,mine.jsonl --n-prompts 20 --temp 0.8 --json
        lead bench --url https://gpu:5555 --api-key-file api.key --ca-file tls.pem
        lead bench                                    the built-in demo models

    Each arrangement answers the same prompts: no drafts, drafts from n-grams of the text, each draft model in
    the engine and in a back on other cores, and the model's own heads (MTP). Options of `lead` for loading
    and sampling apply. No other program should compute meanwhile. With --url, a running lead is measured with
    and without its drafts. Another server with OpenAI's API is measured once. A lead that is measured twice
    drafts from its earlier answers. To prevent this, start the lead with --suffix-memory 0.
    """

    program = "lead bench"
    dialect = dataclasses.replace(
        LLAMA_SERVER, spellings={**LLAMA_SERVER.spellings, "as_json": Spelling(("--json",))}
    )
    headings: ClassVar = {"prompts": "measuring", **ComparisonSettings.headings}
    defaults: ClassVar = {
        **ComparisonSettings.defaults,
        "n_predict": 128,
        "temperature": 0.0,
        "suffix_memory": 0,  # all arrangements get the same prompts
    }

    prompts: CommaList = Field(
        (BUILT_IN,),
        min_length=1,
        description="comma-separated sets of prompts: built-in, human-eval, gsm8k, sessions or a file. "
        "sessions are recorded sessions of Claude Code and Codex, and need a long --ctx-size. "
        "A file has a prompt on each line (.jsonl: an object with prompt or messages). All "
        "sets except built-in need pip install 'llama-duo[bench]'",
    )
    n_prompts: int = Field(
        4,
        ge=1,
        le=10_000,
        description="number of prompts of each kind. For sessions, the shortest prompts are used",
    )
    repeats: int = Field(
        1,
        ge=1,
        le=1000,
        description="number of repeats. Each repeat restarts everything and asks other prompts",
    )
    url: str | None = Field(
        None,
        description="measure the server at this URL, instead of --model. --api-key is sent to the server, "
        "and --alias is the model's name there",
    )
    ca_file: Path | None = Field(
        None, description="file with CA certificates (PEM) that verify a server at https://…"
    )
    plot: Path | None = Field(
        None, description="draw the speeds into this file (.png, .svg or .pdf). Needs llama-duo[bench]"
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        """Return the server's URL, without `/v1` at the end, as in the base URL of OpenAI clients."""
        return url if url is None else server_url(url)

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.plot is not None and self.plot.suffix not in _PLOTS:
            raise OptionError("plot", f"the name must end with {', '.join(_PLOTS)}")
        if self.url is None and self.ca_file is not None:
            raise OptionError("ca_file", "needs --url")
        return self
