"""The kind of sandbox task that follows grammars; it imports its modules with the first grammar."""

from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from shared.llama.vocabulary import Vocabulary
from shared.sandbox import FOLLOW, WorkerLimits


@dataclass(frozen=True, slots=True)
class GrammarProgram:
    """A `shared.sandbox.Program` that follows grammars with the vocabulary of `model`, a GGUF file."""

    model: Path

    def load(self) -> "dict[bytes, GrammarHandler]":
        """Read the vocabulary."""
        return {FOLLOW: GrammarHandler(Vocabulary.load(self.model))}


class GrammarHandler:
    """A `shared.sandbox.TaskHandler` that follows one grammar per task."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def prepare(self) -> None:
        """Index the vocabulary."""
        from shared.sampling.grammar_worker import warm_up_grammars  # noqa: PLC0415 - it needs numpy and llguidance

        warm_up_grammars(self._vocabulary)

    def warm_up(self) -> None:
        """Touch the memory that a typical grammar needs."""
        self.prepare()

    def do(self, connection: Connection, limits: WorkerLimits) -> None:
        """Serve one grammar until the other end of `connection` is closed."""
        from shared.sampling.grammar_worker import follow  # noqa: PLC0415 - as above

        follow(connection, limits, self._vocabulary)
