"""chat's settings: command line over environment (CHAT_*) over default."""

import ssl
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import httpx
from pydantic import AfterValidator, Field, SecretStr, field_validator
from pydantic_settings import CliPositionalArg

from chat.sampling import Sampling
from shared.keys import read_key
from shared.settings.base import ProgramSettings, program_config
from shared.settings.command_line import Dialect, Spelling
from shared.tls import trusting


def _encodable(text: str) -> str:
    """Bytes that are no text are lone surrogates in arguments and variables; on stdin they are replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_Text = Annotated[str, AfterValidator(_encodable)]
"""What is sent to a server."""


class _Options(ProgramSettings):
    """What is not sampling; a class of its own so that `--help` begins with it."""

    question: CliPositionalArg[list[_Text]] = Field(
        default=[], description="ask this, print the answer, and leave; - stands for what is on stdin"
    )
    lead: str = Field("http://127.0.0.1:5555", description="address of the server")
    model: _Text | None = Field(None, description="model to ask for, where the server has several")
    api_key: SecretStr | None = Field(
        None, description="the server's key; CHAT_API_KEY or a file keeps it out of `ps`"
    )
    api_key_file: Path | None = Field(None, description="a file that holds that key")
    ca_file: Path | None = Field(
        None, description="who vouches for a server at https://…: certificates (PEM) instead of the system's"
    )
    system: _Text | None = Field(None, description="system prompt: who the model is to be")
    history: bool = Field(True, description="keep what you type for the next session")
    markdown: bool = Field(True, description="on a terminal, render answers and show a status line")
    output: Literal["text", "json"] = Field(
        "text", description="json, or just --json: each answer as a line of JSON, with its figures"
    )
    lines: bool = Field(False, description="with a pipe as input: each line is a question or a command")
    timeout: float = Field(600, gt=0, description="longest silence of the server to bear, in seconds")

    @field_validator("lead")
    @classmethod
    def _normalize_address(cls, lead: str) -> str:
        """Accept what people paste: without scheme, with a slash or `/v1` at the end."""
        address = lead if "://" in lead else f"http://{lead}"
        address = address.rstrip("/").removesuffix("/v1").rstrip("/")
        try:
            url = httpx.URL(address)
        except httpx.InvalidURL as error:
            raise ValueError(f"should be an address like http://127.0.0.1:5555: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("should be an address like http://127.0.0.1:5555")
        return address


class ChatSettings(Sampling, _Options):
    r"""Talk to a lead, or to any other OpenAI-compatible server, in the terminal.

    Answers stream as they come; words that a back drafted and the lead accepted are
    in colour. Ctrl-C stops an answer, Ctrl-D leaves, :help lists the commands.
    A question on the command line or in a pipe is answered on stdout, and that is all:

        chat "Why is the sky blue?"
        git diff | chat "What does this change?" -
        printf 'Tell me a story.\nAnd then?\n' | chat --lines --seed 1

    Every option is also an environment variable: CHAT_LEAD, CHAT_MAX_TOKENS, ...
    What is left unset is the server's to choose.
    """

    model_config = program_config("chat")
    dialect: ClassVar = Dialect(spellings={"output": Spelling(constants={"--json": "json"})})

    def read_key(self) -> str | None:
        """The key to show the server; raises ConfigError."""
        return read_key(self.api_key, self.api_key_file)

    def tls(self) -> ssl.SSLContext | None:
        """Whom to trust at https://…; None for http. Raises ConfigError."""
        return trusting(self.ca_file) if self.lead.startswith("https:") else None

    @property
    def sampling(self) -> Sampling:
        return Sampling(**{name: getattr(self, name) for name in Sampling.model_fields})
