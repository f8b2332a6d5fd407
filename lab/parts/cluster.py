"""A lead with its backs, as real processes on their own cores, and the network between them."""

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
        n_ctx_slot: int = 2048,
        with_ngram: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Start the lead, with further `options`, and wait until it is ready. Raises ConfigError."""
        self._cores = cores
        arguments = [
            *("--model", str(target), "--cpus", cores.lead, "--threads", str(len(parse_cpus(cores.lead)))),
            *("--print", "none", "--suffix-memory", "0"),  # the same prompts are sent again and again
            *("--parallel", str(n_parallel), "--ctx-size", str(n_ctx_slot * n_parallel)),
        ]
        if not with_ngram:
            arguments.append("--no-ngram")
        arguments += options
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
    def connected(self, plans: Sequence[BackPlan], rtt_ms: float = 0.0) -> Iterator[list[Program]]:
        """Within this context these backs are connected, `rtt_ms` away. Raises ConfigError."""
        with ExitStack() as stack:
            try:
                url = self._far_url(stack, rtt_ms)
                yield [stack.enter_context(self._start_back(plan, url)) for plan in plans]
            except ProgramError as error:
                raise ConfigError(str(error)) from error

    def _far_url(self, stack: ExitStack, rtt_ms: float) -> str:
        if not rtt_ms:
            return self.url
        address = self.url.removeprefix("http://")
        arguments = ("--to", address, "--rtt-ms", str(rtt_ms), "--cpus", self._cores.back)
        proxy = stack.enter_context(Program("lab.parts.link", *arguments))
        port = proxy.wait_for(r"listening on port (\d+)").group(1)
        return f"http://127.0.0.1:{port}"

    def _start_back(self, plan: BackPlan, url: str) -> Program:
        options = (
            "--cpus",
            self._cores.back,
            "--model",
            str(plan.model),
            "--name",
            plan.name,
            "--threads",
            "1",
        )
        return start_back(url, *options, seconds=_START_SECONDS)
