"""llama-server for comparison: the same target and cores, and its own draft model on the same host."""

import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

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
) -> "dict[int, Peer]":
    """Start llama-servers on the same cores: one without drafts, and one for each of `depths`, by depth.

    The depth is fixed when a server starts, so each has its own server. Idle servers take no time, and the
    weights in memory are shared. They run until `stack` is left. Raises ConfigError.
    """
    spelled = help_text(binary)

    def start(depth: int) -> Peer:
        extra = draft_arguments(spelled, draft, depth) if depth else []
        return stack.enter_context(Peer(binary, target, cores, n_slots=n_slots, extra=extra))

    return {depth: start(depth) for depth in (0, *depths)}


def draft_arguments(help_text: str, draft: Path, depth: int) -> list[str]:
    """Return options for a draft model and a fixed number of draft tokens, as this version spells them."""
    if "--spec-draft-n-max" in help_text:
        names = ("--spec-draft-n-max", "--spec-draft-n-min")
        # Without a type this version loads the draft model and does not use it.
        kind = ["--spec-type", "draft-simple"] if "draft-simple" in help_text else []
    else:
        names, kind = ("--draft-max", "--draft-min"), []
    return ["-md", str(draft), names[0], str(depth), names[1], "0", *kind]


class Peer:
    """A running llama-server on its own cores. A context manager."""

    def __init__(self, binary: Path, target: Path, cores: str, *, n_slots: int, extra: Sequence[str]) -> None:
        """Start it and wait until it is ready. Raises ConfigError."""
        port = free_port()
        n_threads = str(len(cpus.parse_cpus(cores)))
        arguments = [
            *("-m", str(target), "--host", "127.0.0.1", "--port", str(port)),
            *("-t", n_threads, "-tb", n_threads, "-np", str(n_slots), "-c", str(_N_CTX_SLOT * n_slots)),
            *("--no-webui", "--cache-ram", "0", *extra),
        ]
        self._program = Program(NAME, *arguments, command=("taskset", "-c", cores, str(binary)))
        self.url = f"http://127.0.0.1:{port}"
        self.http = client(self.url)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Terminate the server."""
        self.http.close()
        self._program.stop()

    def _wait(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self._program.process.poll() is None:
            try:
                if self.http.get("/health").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(_POLL_SECONDS)
        raise ConfigError(f"llama-server did not start:\n{self._program.log[-1500:]}")


def help_text(binary: Path) -> str:
    """Return the output of the binary's --help."""
    done = subprocess.run([str(binary), "--help"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
