"""The real programs of a campaign: a lead, and backs behind links whose quality can be degraded."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Self

import psutil

from lab.parts.link import Link
from lab.parts.processes import Program, Usage, start_lead, usage_of
from shared.errors import ConfigError

_STARTING_SECONDS = 60.0
_BACK_NICENESS = 5
_BACK_CACHE_MIB = 32
"""The MiB of texts that a back keeps: soon full, so that later growth of memory is a fault."""
_READY = re.compile(" ready: ")
_CHILDREN = {"lead.engine": "engine", "shared.fork_server": "tokenizer"}
"""Processes of the lead by the module that they run."""


class Site:
    """The running programs of a campaign, as an async context manager.

    Raises ConfigError if the lead does not start.
    """

    def __init__(self, target: Path, drafts: Sequence[Path], options: Sequence[str]) -> None:
        """drafts: the model of each back. options: further options of the lead."""
        self._arguments = ("--model", str(target), "--threads", "1", "--print", "none", *options)
        self._drafts = drafts
        self._stack = AsyncExitStack()
        self._programs = ExitStack()
        self._taken: psutil.Process | None = None  # the engine that `take_ready_engine` returned last
        self._n_ready_engines = 0  # ready lines in the log when it was returned
        self.replacing = False
        """True if another lead is taking over."""
        self.links: list[Link] = []
        self.backs: list[Program] = []
        self.n_hostile: Counter[str] = Counter()
        """The numbers of requests of hostile clients, frames of hostile backs, and so on, by kind."""
        self.is_starved = False
        """True if the lead's front gets no more memory or descriptors."""
        self.failures: list[str] = []
        """A message for each damage that a hostile peer has done."""
        self.restarting = [asyncio.Lock() for _ in drafts]
        """Held by the task that ends a back, until it has started the next back in its place."""

    async def __aenter__(self) -> Self:
        self.lead, self.url = await asyncio.to_thread(start_lead, *self._arguments)
        self._programs.callback(lambda: self.lead.stop())  # noqa: PLW0108 - another lead by then
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        for index in range(len(self._drafts)):
            self.links.append(await self._stack.enter_async_context(Link(host, int(port))))
            self.backs.append(self._new_back(index))
        self._programs.callback(lambda: [back.stop() for back in self.backs])
        for back in self.backs:
            await asyncio.to_thread(back.wait_for, "drafting for ", _STARTING_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._programs.close)
        await self._stack.aclose()

    @property
    def engine(self) -> psutil.Process | None:
        """The lead's engine process; None while there is none."""
        return self.lead_processes().get("engine")

    def take_ready_engine(self) -> psutil.Process | None:
        """Return the engine process, to be killed; None if it replaces a process returned before and is not
        ready yet.

        A lead whose engines all die before they are ready gives up, as it should.
        """
        engine, n_ready = self.engine, len(_READY.findall(self.lead.log))
        if engine is None or (n_ready == self._n_ready_engines and engine != self._taken):
            return None
        self._taken, self._n_ready_engines = engine, n_ready
        return engine

    @property
    def front(self) -> psutil.Process:
        """The lead's front process."""
        return psutil.Process(self.lead.process.pid)

    def require_lead(self) -> None:
        """Raise ConfigError, with the end of the lead's log, if the lead has ended."""
        if not self.replacing and (status := self.lead.process.poll()) is not None:
            end = self.lead.log[-3000:]
            raise ConfigError(f"the lead has ended with status {status}:\n{end}")

    def replace_lead(self) -> None:
        """Start a lead that takes over from this one, and wait until the old lead has ended.

        Raises ConfigError.
        """
        old, port = self.lead, self.url.rpartition(":")[2]
        self.replacing = True
        new = Program("lead", *self._arguments, "--port", port, "--takeover")
        try:
            new.wait_for(_READY.pattern)
            self.lead, self._taken, self._n_ready_engines = new, None, 0
            old.wait_for("another lead has taken over")
            old.process.wait()
        finally:
            self.replacing = False
            (old if self.lead is new else new).stop()

    def kill_back(self, index: int) -> None:
        """Kill a back and wait until it has ended."""
        self.backs[index].process.kill()
        self.backs[index].stop()

    def start_back(self, index: int) -> None:
        """Restart a back, without waiting for it."""
        self.backs[index] = self._new_back(index)

    def usage(self) -> dict[str, Usage]:
        """Return memory, descriptors and threads of each running process, by name."""
        found = usage_of(self.lead.process.pid)
        for index, back in enumerate(self.backs):
            for name, usage in usage_of(back.process.pid).items():
                found[f"back {index}" if name == "front" else f"back {index} {name}"] = usage
        return found

    def memory(self) -> dict[str, float]:
        """Return the resident memory of each running process in MB, by name."""
        return {name: usage.megabytes for name, usage in self.usage().items()}

    def lead_processes(self) -> dict[str, psutil.Process]:
        """Return the front process and its children, by role."""
        found: dict[str, psutil.Process] = {}
        with suppress(psutil.NoSuchProcess):
            front = self.front
            found["front"] = front
            for child in front.children():
                with suppress(psutil.NoSuchProcess):
                    command = child.cmdline()
                    found |= {name: child for module, name in _CHILDREN.items() if module in command}
        return found

    def _new_back(self, index: int) -> Program:
        options = ["--lead", self.links[index].url, "--model", str(self._drafts[index]), "--threads", "1"]
        options += ["--name", f"back-{index}", "--ping-seconds", "2", "--cache-ram", str(_BACK_CACHE_MIB)]
        back = Program("back", *options)
        # Backs stand for other machines: they should use only the time that the lead leaves.
        psutil.Process(back.process.pid).nice(_BACK_NICENESS)
        return back
