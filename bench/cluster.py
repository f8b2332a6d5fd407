"""A lead with its backs, as real processes on their own cores, and the network between them."""

import functools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.client import client
from bench.processes import Program, ProgramError, start_lead
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
    """How to start a back: the program and its options, without --lead and --cpus."""

    program: str
    arguments: tuple[str, ...]

    @classmethod
    def of_model(cls, path: Path, name: str, *options: str) -> "BackPlan":
        """An honest back, with further `options`."""
        return cls("back", ("--model", str(path), "--name", name, "--threads", "1", *options))

    @classmethod
    def bad(cls, kind: str, delay_ms: float = 0.0) -> "BackPlan":
        """A `bench.adversarial_back`, named after its kind: the lead scores backs by name."""
        return cls(
            "bench.adversarial_back", ("--kind", kind, "--name", f"bad-{kind}", "--delay-ms", str(delay_ms))
        )


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
            *("--print", "none"),
            *("--parallel", str(n_parallel), "--ctx-size", str(n_ctx_slot * n_parallel)),
        ]
        known = lead_help()
        if "--no-ngram" in known and not with_ngram:
            arguments.append("--no-ngram")
        if "--suffix-memory" in known:  # the same prompts are sent again and again
            arguments += ["--suffix-memory", "0"]
        arguments += options
        try:
            self._lead, self.url = start_lead(*arguments)
        except ProgramError as error:
            raise ConfigError(str(error)) from error
        self.http = client(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        proxy = stack.enter_context(Program("bench.proxy", *arguments))
        port = proxy.wait_for(r"listening on port (\d+)").group(1)
        return f"http://127.0.0.1:{port}"

    def _start_back(self, plan: BackPlan, url: str) -> Program:
        back = Program(plan.program, "--lead", url, "--cpus", self._cores.back, *plan.arguments)
        try:
            back.wait_for("drafting for ", _START_SECONDS)
        except BaseException:
            back.stop()
            raise
        return back


@functools.cache
def lead_help() -> str:
    """The lead's --help: older leads lack options that the bench would use."""
    command = [sys.executable, "-m", "lead", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
