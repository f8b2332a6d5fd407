"""The settings of `lead generate`: the lead's, and the text to continue."""

import dataclasses
import sys
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator
from pydantic_settings import CliToggleFlag

from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.settings.command_line import Spelling
from shared.settings.llama_server_options import LLAMA_SERVER
from shared.settings.options import OptionError

_STDIN = "-"
_MAX_PROMPT_BYTES = 64 << 20


class GenerateSettings(LeadSettings):
    """Continue a text without a server. Prints the text and the time it took.

        lead generate --model stories42M.bin --back stories15M.bin -n 256 -i "Once upon a time"
        lead generate --model 8B.gguf --back 1B.gguf --compare --temp 0 --file prompt.txt
        git diff | lead generate --model gpt2/ --prompt -

    The text goes to standard output, and all other output to standard error. On a terminal, accepted draft
    tokens are in color. All options and environment variables of `lead` apply, except for network options.
    """

    program = "lead generate"
    dialect = dataclasses.replace(
        LLAMA_SERVER,
        spellings={**LLAMA_SERVER.spellings, "prompt": Spelling(("-p", "-i")), "file": Spelling(("-f",))},
    )
    headings: ClassVar = {"prompt": "text", **LeadSettings.headings}
    defaults: ClassVar = {"n_predict": 256, "parallel": 1, "log_level": "warning"}

    prompt: str | None = Field(
        None,
        description="beginning of the text; -: read it from standard input. Without this option the model "
        "writes the beginning, too",
    )
    file: Path | None = Field(None, description="file with the beginning of the text; -: standard input")
    display_prompt: bool = Field(True, description="print the beginning of the text, too")
    compare: CliToggleFlag[bool] = Field(
        False,
        description="generate the text twice, first without drafts, and print both times and whether the "
        "texts are equal",
    )

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.prompt is not None and self.file is not None:
            raise OptionError("file", "cannot be combined with --prompt")
        return self

    def read_prompt(self) -> str:
        """Return the text to continue; raises ConfigError."""
        if str(self.file or self.prompt) == _STDIN:
            return _decoded(sys.stdin.buffer.read(_MAX_PROMPT_BYTES), "standard input")
        if self.file is None:
            return self.prompt or ""
        try:
            return _decoded(self.file.read_bytes(), str(self.file))
        except OSError as error:
            raise ConfigError(f"cannot read {self.file}: {error.strerror}") from error


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not text in UTF-8") from error
