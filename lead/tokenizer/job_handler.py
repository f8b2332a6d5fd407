"""What runs in the tokenizer processes."""

import logging
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from lead.chat.template import model_template
from lead.settings.conversation import ConversationOptions
from lead.settings.limits import RequestLimits
from lead.tokenizer.jobs import GRAMMARS_NEEDED, JobLimits, decode, encode
from lead.tokenizer.preparation import GrammarsNeededError, Preparation
from shared.errors import RequestError, ServerError
from shared.llama.vocabulary import Vocabulary
from shared.logs import LogLevel, configure_logging
from shared.sandbox import FOLLOW, JOBS, TaskHandler, WorkerLimits

log = logging.getLogger("tokenizer")


@dataclass(frozen=True, slots=True)
class TokenizerProgram:
    """A `shared.sandbox.Program`, also for the engine's grammars. chat_template: None: the model's own."""

    model: Path
    chat_template: str | None
    chat: ConversationOptions
    limits: RequestLimits
    log_level: LogLevel = "info"
    log_json: bool = False

    def load(self) -> dict[bytes, TaskHandler]:
        """Read the vocabulary, and fill the caches that all workers share."""
        from shared.sampling.grammar_worker import GrammarHandler  # noqa: PLC0415 - the front needs no numpy

        configure_logging(self.log_level, as_json=self.log_json)
        vocabulary = Vocabulary.load(self.model)
        template, _ = model_template(vocabulary, self.chat_template)
        vocabulary.tokenize("", add_special=True, parse_special=True)
        preparation = Preparation(vocabulary, template, self.chat, self.limits, indexes_grammars=False)
        jobs = JobHandler(preparation, self.limits.prepare_seconds)
        return {JOBS: jobs, FOLLOW: GrammarHandler(vocabulary)}


class JobHandler:
    """A `shared.sandbox.TaskHandler`: a task is jobs, each answered with its result or an error."""

    def __init__(self, preparation: Preparation, base_seconds: float) -> None:
        self._preparation = preparation
        self._base_seconds = base_seconds

    def prepare(self) -> None:
        """All is loaded."""

    def warm_up(self) -> None:
        """Nothing is slower the first time."""

    def do(self, connection: Connection, limits: WorkerLimits) -> None:
        """Do jobs until the other end of `connection` is closed, or one has taken much memory."""
        while not limits.has_grown:
            data = connection.recv_bytes()
            allowed = JobLimits.of(len(data), self._base_seconds)
            with limits.memory(allowed.heap_bytes), limits.time(allowed.cpu_seconds):
                answer = self._answer(data)
            connection.send_bytes(encode(answer))

    def _answer(self, data: bytes) -> object:
        try:
            method, arguments, options = decode(data)
            return method(self._preparation, *arguments, **options)
        except GrammarsNeededError:
            return GRAMMARS_NEEDED
        except RequestError as error:
            return error
        except MemoryError:
            return RequestError("preparing this request takes too much memory")
        except Exception as error:
            log.exception("preparing a request failed")
            return ServerError(str(error))
