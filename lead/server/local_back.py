"""A back beside the lead: the `back` program as a child process, started again when it dies.

To the lead it is a back like any other, over the same protocol; only its start and its end are the lead's.
Its log goes to the lead's standard error.
"""

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from lead.settings.lead_settings import LeadSettings
from shared.backoff import jittered_delays

log = logging.getLogger("lead")

NAME = "local"
"""How the lead calls it."""

_STOP_SECONDS = 5.0
"""How long it may take for its last decode before it is killed."""
_FIRST_DELAY, _MOST_DELAY = 0.5, 60.0
_SOUND_SECONDS = 60.0
"""One that has lived so long was well: after its death the delays begin from the first again."""
_LEADS_OWN = ("LEAD_", "LLAMA_")
_FINAL = {1, 2}
"""Statuses of a back that says what a person has to change: 1 of the model or by the lead, 2 of an option."""


class LocalBack:
    """`run` supervises until `stop`. It never raises for what the child does, and nobody waits for it."""

    def __init__(
        self,
        command: Sequence[str],
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
        stop_seconds: float = _STOP_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` is the child's; `rng` jitters the delays between its starts; `clock` gives seconds.

        `environment` is the child's; None: the lead's own.

        The child's standard input is a pipe that nothing is written to. Its end tells the child that the lead
        is gone, however it went and wherever the child is; unlike prctl(PR_SET_PDEATHSIG) this works on every
        system and does not depend on the thread that started it.
        """
        self._command = command
        self._rng = rng
        self._clock = clock
        self._stop_seconds = stop_seconds
        self._environment = environment
        self._stopping = asyncio.Event()

    async def run(self, ready: asyncio.Event) -> None:
        """Keep a back running from when `ready` is set until `stop`; returns when the last one has ended."""
        await _first_of(ready.wait(), self._stopping.wait())
        delays = self._delays()
        while not self._stopping.is_set():
            started_at = self._clock()
            status = await self._run_once()
            if self._stopping.is_set():
                return
            if status in _FINAL:
                log.error("the local back will not be started again: going on without it")
                return
            if self._clock() - started_at > _SOUND_SECONDS:
                delays = self._delays()
            delay = next(delays)
            log.warning("the local back ended (%s): starting it again in %.1f s", _describe(status), delay)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    def stop(self) -> None:
        """Begin to end it, for good: `run` returns when it is gone."""
        self._stopping.set()

    async def _run_once(self) -> int | None:
        """The exit status of one child; None if it could not be started."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                # It writes no results; the lead's standard output is for text.
                stdout=asyncio.subprocess.DEVNULL,
                # Ctrl-C reaches the whole process group; the lead decides when its back ends.
                start_new_session=True,
            )
        except OSError as error:
            log.warning("the local back cannot be started: %s", error)
            return None
        try:
            await _first_of(process.wait(), self._stopping.wait())
            if process.returncode is None:
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._stop_seconds):
                        await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode

    def _delays(self) -> Iterator[float]:
        return jittered_delays(_FIRST_DELAY, _MOST_DELAY, self._rng)


def back_command(settings: LeadSettings, host: str, port: int) -> list[str]:
    """How to start the back that `settings` ask for, beside a lead that listens on `host` and `port`.

    What the settings do not mention is left to the back's own defaults and BACK_* variables.
    Raises ConfigError if the built-in draft model is not there.
    """
    back, certificate = settings.own_back, settings.security.ssl_cert_file
    return [
        *(sys.executable, "-m", "back", "--exit-with-stdin"),
        *("--lead", local_url(host, port, tls=settings.security.https)),
        *("--name", NAME),
        *("--model", str(back.path())),
        *("--threads", str(back.n_threads)),
        *("--n-gpu-layers", str(back.back_gpu_layers)),
        *("--parallel", str(settings.compute.parallel)),
        *("--log-level", settings.log_level),
        *(["--log-json"] if settings.log_json else []),
        # It dials an address for which the certificate hardly stands.
        *(["--pinned-certificate", str(certificate)] if certificate else []),
        *(["--cpus", back.back_cpus] if back.back_cpus else []),
    ]


def back_environment(environment: Mapping[str, str], key: str) -> dict[str, str]:
    """What that back finds in its environment: `key`, which others would see on a command line.

    The lead's own variables it does not get: its context and cache types are not its back's, and some hold
    other keys.
    """
    kept = {name: value for name, value in environment.items() if not name.upper().startswith(_LEADS_OWN)}
    return kept | {"BACK_KEY": key}


def local_url(host: str, port: int, *, tls: bool = False) -> str:
    """Where a program on this machine reaches a server that listens on `host`, an address as bound."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them does; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _describe(status: int | None) -> str:
    if status is None:
        return "not started"
    return f"signal {-status}" if status < 0 else f"status {status}"
