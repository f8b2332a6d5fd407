"""The program of a fork server: tokenizer processes, and processes that follow the engine's grammars."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.job_handler import JobHandler
from shared.errors import ConfigError
from shared.logs import LogLevel, configure_logging
from shared.sandbox import FOLLOW, JOBS, TaskHandler


@dataclass(frozen=True, slots=True)
class TokenizerProgram:
    """The program of tokenizer processes (`shared.sandbox.Program`).

    chat_template: Jinja source; None means the model's own template. writes_text: as in `Vocabulary.load`.
    """

    model: Path
    chat_template: str | None
    chat: ConversationOptions
    limits: RequestLimits
    log_level: LogLevel = "info"
    log_json: bool = False
    writes_text: bool = True

    def load(self) -> Mapping[bytes, TaskHandler]:
        """Read the vocabulary, and fill the caches that all workers share.

        If llama.cpp, the model or the template cannot be used, every job fails with the reason.
        """
        configure_logging(self.log_level, as_json=self.log_json)
        try:
            return self._load()
        except ConfigError as error:
            return {JOBS: JobHandler(error, self.limits.prepare_seconds)}

    def _load(self) -> Mapping[bytes, TaskHandler]:
        # The front makes the program, and has neither llama.cpp nor Jinja.
        from lead.chat_format.template import model_template  # noqa: PLC0415
        from lead.tokenizer.request_preparer import RequestPreparer  # noqa: PLC0415
        from shared.llama.vocabulary import Vocabulary  # noqa: PLC0415
        from shared.sampling.grammar_handler import GrammarHandler  # noqa: PLC0415

        vocabulary = Vocabulary.load(self.model, writes_text=self.writes_text)
        template, problem = model_template(vocabulary, self.chat_template)
        vocabulary.tokenize("", add_special=True, parse_special=True)
        preparer = RequestPreparer(
            vocabulary, template, self.chat, self.limits, problem=problem, indexes_grammars=False
        )
        jobs = JobHandler(preparer, self.limits.prepare_seconds)
        return {JOBS: jobs, FOLLOW: GrammarHandler(vocabulary)}
