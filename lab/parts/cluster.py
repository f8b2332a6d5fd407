"""A lead with its backs, as real processes on their own cores."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lab.measuring.measured_answer import client
from lab.parts.processes import Program, ProgramError, start_back, start_lead
from shared.cpus import parse_cpus
from shared.errors import ConfigError

_START_SECONDS = 60.0
_N_CTX = 2048


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores for the lead and for the backs, in the syntax of `--cpus`."""

    lead: str
    back: str


@dataclass(frozen=True, slots=True)
class BackPlan:
    """A back to start: its draft model and its name."""

    model: Path
    name: str


class Cluster:
    """One lead; `connected` adds backs for a while. A context manager."""

    def __init__(
        self,
        target: Path,
        cores: Cores,
        *,
        n_parallel: int = 1,
        with_ngram: bool = False,
    ) -> None:
        """Start the lead and wait until it is ready. Raises ConfigError."""
        self._cores = cores
        arguments = [
            *("--model", str(target), "--cpus", cores.lead, "--threads", str(len(parse_cpus(cores.lead)))),
            *("--print", "none", "--suffix-memory", "0"),  # the same prompts are sent again and again
            *("--parallel", str(n_parallel), "--ctx-size", str(_N_CTX * n_parallel)),
        ]
        if not with_ngram:
            arguments.append("--no-ngram")
        try:
            self._lead, self.url = start_lead(*arguments)
        except ProgramError as error:
            raise ConfigError(str(error)) from error
        self.http = client(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self._lead.stop()

    @contextmanager
    def connected(self, plans: Sequence[BackPlan]) -> Iterator[list[Program]]:
        """Within this context these backs are connected. Raises ConfigError."""
        with ExitStack() as stack:
            try:
                yield [stack.enter_context(self._start_back(plan)) for plan in plans]
            except ProgramError as error:
                raise ConfigError(str(error)) from error

    def _start_back(self, plan: BackPlan) -> Program:
        model = ("--model", str(plan.model), "--name", plan.name)
        cores = ("--cpus", self._cores.back, "--threads", "1")
        return start_back(self.url, *model, *cores, seconds=_START_SECONDS)
