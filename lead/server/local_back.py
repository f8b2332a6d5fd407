"""The back that the lead starts itself: the `back` program as a child process, restarted when it dies.

It uses the same protocol as any other back; the lead only starts and stops it. It logs to the lead's standard
error.
"""

import asyncio
import logging
import random
import subprocess
from collections.abc import Mapping, Sequence

from lead.settings.lead_settings import LeadSettings
from shared.keeper import Child, Keeper
from shared.python_child import child_command
from shared.rate_limit import Backoff
from shared.sandbox import NO_GPU, without_secrets
from shared.supervisor import ChildState, Supervisor

log = logging.getLogger("lead")

DEFAULT_URL = "http://127.0.0.1:5555"
"""The URL of a lead with default options, on this machine."""
NAME = "local"
"""The name of the lead's own back in the log and in metrics."""

_STOP_SECONDS = 5.0
"""The time that the back may take to end before it is killed."""
_FIRST_DELAY, _MAX_DELAY = 0.5, 60.0
_LEAD_PREFIXES = ("LEAD_", "LLAMA_")
_FINAL = {1, 2}
"""Statuses after which a restart does not help. 1: wrong model, or refused by the lead; 2: wrong option."""


class LocalBack:
    """The lead's own back, a child process. `run` keeps it running until `stop`, and never raises."""

    def __init__(
        self, command: Sequence[str], rng: random.Random, environment: Mapping[str, str] | None = None
    ) -> None:
        """`rng` jitters the delays between restarts; `environment`: None for the lead's own."""
        self._command = command
        self._environment = environment
        supervisor = Supervisor(Backoff(_FIRST_DELAY, _MAX_DELAY, rng), state=ChildState.SLEEPING)
        self._keeper: Keeper[Child] = Keeper("the local back", supervisor, level=logging.WARNING)
        self.ended = asyncio.Event()
        """This event is set once the child has ended and is not started again."""

    async def run(self, ready: asyncio.Event) -> None:
        """Start the back once `ready` is set, and restart it until `stop`; returns when the child
        has ended.
        """
        waking = asyncio.ensure_future(self._wake(ready))
        try:
            await self._keeper.run(self._start, self._live)
        finally:
            waking.cancel()
            self.ended.set()

    def stop(self) -> None:
        """Terminate the child and do not restart it; `run` returns when it has ended."""
        self._keeper.stop()

    async def _wake(self, ready: asyncio.Event) -> None:
        await ready.wait()
        self._keeper.use()

    async def _start(self) -> Child:
        return Child(
            self._command,
            stop_seconds=_STOP_SECONDS,
            env=self._environment,
            # It prints nothing there; the lead's standard output is for generated text.
            stdout=subprocess.DEVNULL,
            # Ctrl-C reaches the whole process group; the lead decides when its back ends.
            start_new_session=True,
        )

    async def _live(self, child: Child) -> None:
        if await asyncio.shield(child.ended) in _FINAL and self._keeper.state is not ChildState.STOPPED:
            self._keeper.fail()
            log.error("the local back failed and is not restarted. The lead continues without it")


def back_command(settings: LeadSettings, host: str, port: int) -> list[str]:
    """Return the command line of the back, for a lead that listens on `host` and `port`.

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
    """Return the environment of the back: the given one, without the lead's variables and secrets.

    key: the back's key, passed here because other users can read a command line. cache_ram: the back's share
    of the memory for earlier texts, in MiB; a setting of the back's own takes precedence.
    """
    others = without_secrets(environment)
    kept = {name: value for name, value in others.items() if not name.upper().startswith(_LEAD_PREFIXES)}
    hidden = {} if needs_gpu else NO_GPU
    return {"BACK_CACHE_RAM": str(cache_ram)} | kept | hidden | {"BACK_KEY": key}


def invite_command(url: str) -> str:
    """Return the command that invites a machine to the lead at `url`."""
    return "lead invite --open --nearby" + ("" if url == DEFAULT_URL else f" --lead {url}")


def local_url(host: str, port: int, *, tls: bool = False) -> str:
    """Return the URL on this machine of a server that listens on the address `host`."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"
