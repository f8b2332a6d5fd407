"""The back that the lead starts itself: the `back` program as a child process, restarted when it dies.

It uses the same protocol as any other back; the lead only starts and stops it. Its log goes to the lead's
standard error.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from lead.settings.lead_settings import LeadSettings
from shared.lifeline import lifeline
from shared.pace import Backoff
from shared.python_child import child_command
from shared.sandbox import NO_GPU, without_secrets

log = logging.getLogger("lead")

NAME = "local"
"""Its name in the lead's log and metrics."""

_STOP_SECONDS = 5.0
"""How long it may take to end before it is killed."""
_FIRST_DELAY, _MAX_DELAY = 0.5, 60.0
_STABLE_SECONDS = 60.0
"""If it ran for longer than this before it died, the delays between restarts start over."""
_LEAD_PREFIXES = ("LEAD_", "LLAMA_")
_FINAL = {1, 2}
"""Statuses after which a restart does not help. 1: wrong model, or refused by the lead; 2: wrong option."""


class LocalBack:
    """`run` supervises the child until `stop`; it does not raise, whatever the child does."""

    def __init__(
        self,
        command: Sequence[str],
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
        stop_seconds: float = _STOP_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`rng` jitters the delays between restarts; `environment`: None for the lead's own."""
        self._command = command
        self._rng = rng
        self._clock = clock
        self._stop_seconds = stop_seconds
        self._environment = environment
        self._stopping = asyncio.Event()
        self.ended = asyncio.Event()
        """The child has ended, and is not started again."""

    async def run(self, ready: asyncio.Event) -> None:
        """Keep a back running from when `ready` is set until `stop`; returns when the child has ended."""
        try:
            await _first_of(ready.wait(), self._stopping.wait())
            await self._keep_running()
        finally:
            self.ended.set()

    async def _keep_running(self) -> None:
        delays = Backoff(_FIRST_DELAY, _MAX_DELAY, self._rng)
        while not self._stopping.is_set():
            started_at = self._clock()
            status = await self._run_once()
            if self._stopping.is_set():
                return
            if status in _FINAL:
                log.error("the local back will not be restarted: continuing without it")
                return
            if self._clock() - started_at > _STABLE_SECONDS:
                delays.reset()
            delay = next(delays)
            log.warning("the local back ended (%s): restarting it in %.1f s", _describe(status), delay)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    def stop(self) -> None:
        """Terminate the child and do not restart it; `run` returns when it has ended."""
        self._stopping.set()

    async def _run_once(self) -> int | None:
        """Run one child; its exit status, or None if it could not be started."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                pass_fds=[lifeline()],
                stdin=asyncio.subprocess.DEVNULL,
                # It prints nothing there; the lead's standard output is for generated text.
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


def back_command(settings: LeadSettings, host: str, port: int) -> list[str]:
    """The command line of the back, for a lead that listens on `host` and `port`.

    Other options are left to the back's defaults and to BACK_* variables. Raises ConfigError if the built-in
    draft model is not installed.
    """
    back, certificate = settings.own_back, settings.security.ssl_cert_file
    return [
        *child_command("back", "--lead", local_url(host, port, tls=settings.security.https)),
        *("--name", NAME),
        *("--model", str(back.source(settings.source).model)),
        *("--threads", str(back.n_threads)),
        *("--n-gpu-layers", str(back.back_gpu_layers)),
        *("--parallel", str(settings.compute.parallel)),
        *("--log-level", settings.log_level),
        *(["--log-json"] if settings.log_json else []),
        # It connects to a loopback address, which the certificate rarely contains.
        *(["--pinned-certificate-file", str(certificate)] if certificate else []),
        *(["--cpus", back.back_cpus] if back.back_cpus else []),
    ]


def back_environment(
    environment: Mapping[str, str], key: str, cache_ram: int, *, needs_gpu: bool = True
) -> dict[str, str]:
    """The environment of the back, with `key`, which would be visible on a command line.

    cache_ram: its share of what may be kept of earlier texts, in MiB; its own setting goes first.

    The lead's variables are left out: its context size and cache types are not the back's.
    """
    others = without_secrets(environment)
    kept = {name: value for name, value in others.items() if not name.upper().startswith(_LEAD_PREFIXES)}
    hidden = {} if needs_gpu else NO_GPU
    return {"BACK_CACHE_RAM": str(cache_ram)} | kept | hidden | {"BACK_KEY": key}


def local_url(host: str, port: int, *, tls: bool = False) -> str:
    """The URL on this machine of a server that listens on the address `host`."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them returns, and cancel the others."""
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
