"""What runs in the tokenizer processes."""

import logging
from multiprocessing.connection import Connection

from lead.chat.template import model_template
from lead.tokenizer.jobs import GRAMMARS_NEEDED, JobLimits, Jobs, decode, encode
from lead.tokenizer.preparation import GrammarsNeededError, Preparation
from lead.tokenizer.tokenizer_program import TokenizerProgram
from shared.errors import ConfigError, DuoError, ModelLoadError, RequestError, ServerError
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.sampling.grammar_handler import GrammarHandler
from shared.sandbox import FOLLOW, JOBS, TaskHandler, WorkerLimits

log = logging.getLogger("tokenizer")


def load_handlers(program: TokenizerProgram) -> dict[bytes, TaskHandler]:
    """Those of all kinds of tasks. If the model or the template cannot be used, every job says why."""
    configure_logging(program.log_level, as_json=program.log_json)
    seconds = program.limits.prepare_seconds
    try:
        vocabulary = Vocabulary.load(program.model)
        template, problem = model_template(vocabulary, program.chat_template)
    except (ModelLoadError, ConfigError) as error:
        return {JOBS: JobHandler(error, seconds)}
    vocabulary.tokenize("", add_special=True, parse_special=True)
    preparation = Preparation(
        vocabulary, template, program.chat, program.limits, problem=problem, indexes_grammars=False
    )
    return {JOBS: JobHandler(preparation, seconds), FOLLOW: GrammarHandler(vocabulary)}


class JobHandler:
    """A `shared.sandbox.TaskHandler`: a task is jobs, each answered with its result or an error."""

    def __init__(self, jobs: Jobs | DuoError, base_seconds: float) -> None:
        """jobs: an error: why none can be done."""
        self._jobs = jobs
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
        if isinstance(self._jobs, DuoError):
            return self._jobs
        try:
            method, arguments, options = decode(data)
            return getattr(self._jobs, method)(*arguments, **options)
        except GrammarsNeededError:
            return GRAMMARS_NEEDED
        except DuoError as error:
            return error
        except MemoryError:
            return RequestError("preparing this request takes too much memory")
        except Exception as error:
            log.exception("preparing a request failed")
            return ServerError(str(error))
