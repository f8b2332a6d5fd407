"""chat's settings: options override environment variables (CHAT_*), which override defaults."""

import platform
import ssl
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator
from pydantic_settings import CliPositionalArg, CliSuppress

from chat.sampling import Sampling
from shared.key_file import read_key
from shared.pairing.joined_lead import JOIN_HELP, JoinedLead
from shared.settings.base import ProgramSettings
from shared.settings.command_line import Dialect, Spelling
from shared.settings.options import PathList
from shared.settings.server_url import server_url
from shared.tls import pinning, trusting


def _encodable(text: str) -> str:
    """Replace bytes that are not UTF-8, as chat does in stdin. Python passes them on as lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_Text = Annotated[str, AfterValidator(_encodable)]
"""Text that is sent to a server."""


class ChatSettings(ProgramSettings):
    r"""Chat with a lead, or with any other OpenAI-compatible server, in the terminal.

    Answers are streamed. Colored words are accepted drafts. Ctrl-C stops an answer, Ctrl-D exits, and :help
    lists the commands.
    With a question on the command line or in a pipe, chat prints the answer to stdout and exits:

        chat "Why is the sky blue?"
        git diff | chat "What does this change?" -
        chat --image photo.jpg "What is this?"
        printf 'Tell me a story.\nAnd then?\n' | chat --lines --seed 1

    Each option has an environment variable: CHAT_LEAD, CHAT_MAX_TOKENS, …
    The server chooses sampling options that are not set.
    """

    program = "chat"
    prefix = "CHAT_"
    usual: ClassVar = {
        "question": "question to answer, then exit; -: read stdin",
        "lead": "address of the server: host:port or a URL",
        "join": "code from `lead invite --chat`, needed once",
        "model": "name of the model, if the server has several",
        "api_key_file": "file with the server's key",
        "image": "image file, for models that read images",
        "system": "system prompt",
        "output": "text or json; --json is the same as json",
        "lines": "each line of stdin is a question",
        "markdown": "--no-markdown shows the text as it is",
        "temperature": "0: always the most likely token",
        "max_tokens": "maximum tokens of an answer",
        "seed": "the same seed gives the same answer",
    }
    dialect: ClassVar = Dialect(spellings={"output": Spelling(constants={"--json": "json"})})

    question: CliPositionalArg[list[_Text]] = Field(
        default=[], description="question to answer, then exit. - is replaced with the text from stdin"
    )
    lead: Annotated[str, AfterValidator(server_url)] = Field(
        "http://127.0.0.1:5555", description="address of the server: host:port or a URL"
    )
    join: str | None = Field(None, description=JOIN_HELP % "lead invite --chat")
    model: _Text | None = Field(None, description="name of the model to use, if the server has several")
    api_key: SecretStr | None = Field(
        None,
        description="the server's API key. The variable CHAT_API_KEY and --api-key-file hide the key from "
        "process listings",
    )
    api_key_file: Path | None = Field(None, description="file with the server's API key")
    ca_file: Path | None = Field(
        None,
        description="file with CA certificates (PEM) that verify a server at https://…, instead of the "
        "system's certificates. It can be the server's self-signed certificate",
    )
    pinned_certificate_file: CliSuppress[Path | None] = Field(
        None, description="the server's certificate, trusted under any name"
    )
    image: PathList = Field(
        (), description="image file for the first question, for models that read images. May be repeated"
    )
    system: _Text | None = Field(None, description="system prompt")
    history: bool = Field(True, description="keep the input history for later sessions")
    markdown: bool = Field(True, description="on a terminal, render Markdown and show a status line")
    output: Literal["text", "json"] = Field(
        "text",
        description="output format: text or json. json (or --json) prints one line of JSON for "
        "each answer, with statistics",
    )
    lines: bool = Field(False, description="if stdin is a pipe, read each line as a question or a command")
    timeout: float = Field(
        600, gt=0, description="seconds without data from the server after which a request fails"
    )
    sampling: Sampling = Sampling()

    @field_validator("image")
    @classmethod
    def _check_images(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in paths:
            if not path.is_file():
                raise ValueError(f"{path} is not a file")
        return paths

    def joined(self) -> Self:
        """Return the settings with the lead of `--join` or of an earlier pairing, unless a lead is named;
        raises ConfigError.
        """
        if self.join is None and "lead" in self.model_fields_set:
            return self
        return self._with_joined(self.join)

    def located_again(self) -> Self:
        """Return the settings with the present address of the lead that was joined; raises ConfigError."""
        return self._with_joined(None)

    def _with_joined(self, code: str | None) -> Self:
        lead = JoinedLead.find("client", platform.node(), code)
        if lead is None:
            return self
        found = {"lead": lead.url, "api_key": lead.key, "pinned_certificate_file": lead.certificate}
        return self.model_copy(update=found)

    @property
    def is_joined(self) -> bool:
        return self.pinned_certificate_file is not None

    def read_key(self) -> str | None:
        """Return the key to send to the server; raises ConfigError."""
        return read_key(self.api_key, self.api_key_file)

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context that verifies a server at https://…; None for http. Raises ConfigError."""
        if not self.lead.startswith("https:"):
            return None
        return (
            pinning(self.pinned_certificate_file) if self.pinned_certificate_file else trusting(self.ca_file)
        )
