"""What a fork server is started for: tokenizer processes, and those that follow the engine's grammars."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from shared.logs import LogLevel
from shared.sandbox import TaskHandler


@dataclass(frozen=True, slots=True)
class TokenizerProgram:
    """A `shared.sandbox.Program`. chat_template: None: the model's own.

    The front makes it, and imports nothing of what `load` needs.
    """

    model: Path
    chat_template: str | None
    chat: ConversationOptions
    limits: RequestLimits
    log_level: LogLevel = "info"
    log_json: bool = False

    def load(self) -> Mapping[bytes, TaskHandler]:
        """Read the vocabulary, and fill the caches that all workers share."""
        from lead.tokenizer.job_handler import load_handlers  # noqa: PLC0415 - see the class

        return load_handlers(self)
