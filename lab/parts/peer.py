"""Runs llama-server for comparison: the same target and cores, and its own draft model on the same host."""

import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx

from lab.measuring.measured_answer import client
from lab.parts.processes import Program, free_port
from shared import cpus
from shared.errors import ConfigError

NAME = "llama-server"
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.1
_N_CTX_SLOT = 2048


def find(option: str) -> Path:
    """Return the binary named by `--peer llama-server=PATH`. Raises ConfigError."""
    name, _, path = option.partition("=")
    if name != NAME or not Path(path).is_file():
        raise ConfigError(f"--peer {option}: write llama-server=PATH, the path of its binary")
    return Path(path)


def start_peers(
    stack: ExitStack,
    binary: Path,
    target: Path,
    draft: Path,
    cores: str,
    *,
    depths: Sequence[int],
    n_slots: int = 1,
) -> dict[int, httpx.Client]:
    """Start llama-servers on the same cores, and return their clients by depth: one server without drafts,
    and one for each of `depths`.

    The depth is fixed when a server starts, so each has its own server. Idle servers take no time, and the
    weights in memory are shared. They run until `stack` is left. Raises ConfigError.
    """
    spelled = help_text(binary)

    def start(depth: int) -> httpx.Client:
        extra = draft_arguments(spelled, draft, depth) if depth else []
        return _start(stack, binary, target, cores, n_slots, extra)

    return {depth: start(depth) for depth in (0, *depths)}


def draft_arguments(help_text: str, draft: Path, depth: int) -> list[str]:
    """Return options for a draft model and a fixed number of draft tokens, as this llama-server spells it."""
    if "--spec-draft-n-max" in help_text:
        names = ("--spec-draft-n-max", "--spec-draft-n-min")
        # Without a type this version loads the draft model and does not use it.
        kind = ["--spec-type", "draft-simple"] if "draft-simple" in help_text else []
    else:
        names, kind = ("--draft-max", "--draft-min"), []
    return ["-md", str(draft), names[0], str(depth), names[1], "0", *kind]


def _start(  # noqa: PLR0917 - as `start_peers` calls it
    stack: ExitStack, binary: Path, target: Path, cores: str, n_slots: int, extra: Sequence[str]
) -> httpx.Client:
    """Start one llama-server, and return its client when it is ready. Raises ConfigError."""
    port, n_threads = free_port(), str(len(cpus.parse_cpus(cores)))
    arguments = [
        *("-m", str(target), "--host", "127.0.0.1", "--port", str(port)),
        *("-t", n_threads, "-tb", n_threads, "-np", str(n_slots), "-c", str(_N_CTX_SLOT * n_slots)),
        *("--no-webui", "--cache-ram", "0", *extra),
    ]
    server = stack.enter_context(Program(NAME, *arguments, command=("taskset", "-c", cores, str(binary))))
    http = stack.enter_context(client(f"http://127.0.0.1:{port}"))
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and server.process.is_running:
        with suppress(httpx.TransportError):
            if http.get("/health").is_success:
                return http
        time.sleep(_POLL_SECONDS)
    raise ConfigError(f"llama-server did not start:\n{server.log[-1500:]}")


def help_text(binary: Path) -> str:
    """Return the output of the binary's --help."""
    done = subprocess.run([str(binary), "--help"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
