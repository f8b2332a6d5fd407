"""SMG and HAProxy before leads, as deploy/fleet sets them up, and Ray: child processes on free ports."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from lab.parts.processes import Program, ProgramError, free_port

FLEET = Path(__file__).parents[1] / "deploy/fleet"
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.1


def smg_python() -> Path | None:
    """The interpreter that has SMG: SMG_PYTHON, or from `make router`; None without SMG."""
    path = Path(os.environ.get("SMG_PYTHON") or Path(sys.prefix) / "router/bin/python")
    return path if path.is_file() else None


def haproxy() -> str | None:
    """HAProxy's path, which Debian puts where only root looks."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


def start_smg(python: Path, leads: Sequence[str], key_file: Path, *options: str) -> tuple[Program, str]:
    """Start SMG before the leads with these URLs; return it and its URL once it knows all leads."""
    port, metrics_port = free_port(), free_port()
    arguments = [
        *("--key-file", str(key_file), "--port", str(port), "--prometheus-port", str(metrics_port)),
        *("--worker-urls", *leads, *options),
    ]
    program = Program("smg", *arguments, command=(str(python), str(FLEET / "router.py")))
    url = f"http://127.0.0.1:{port}"
    _wait(program, lambda: len(_get(f"{url}/loads").json()["loads"]) == len(leads))
    return program, url


def start_haproxy(
    binary: str, leads: Sequence[str], key_file: Path, smg: str, certificate: Path | None = None
) -> tuple[Program, str]:
    """Start HAProxy before SMG and two leads, by URLs, and wait until it is ready; return it and its URL.

    If nothing listens at `smg`, HAProxy alone chooses the leads. `certificate`: a file with its chain and its
    key,
    for HTTPS.
    """
    address = f"127.0.0.1:{free_port()}"
    lead_a, lead_b = (url.removeprefix("http://") for url in leads)
    variables = {
        "FLEET_BIND": f"{address} ssl crt {certificate}" if certificate else address,
        "FLEET_KEYS": str(key_file),
        "FLEET_SMG": smg.removeprefix("http://"),
        "FLEET_LEAD_A": lead_a,
        "FLEET_LEAD_B": lead_b,
    }
    settings = [f"{name}={value}" for name, value in variables.items()]
    program = Program("haproxy", "-f", str(FLEET / "haproxy.cfg"), command=("env", *settings, binary))
    url = f"{'https' if certificate else 'http'}://{address}"
    _wait(program, lambda: _get(f"{url}/health").is_success)
    return program, url


def _get(url: str) -> httpx.Response:
    """Ask whether a router is ready, without a check of its certificate."""
    return httpx.get(url, trust_env=False, timeout=_READY_SECONDS, verify=False)  # noqa: S501


def _wait(program: Program, is_ready: Callable[[], bool]) -> None:
    """Wait until the program is ready. Raises ProgramError, with the program stopped."""
    deadline = time.monotonic() + _READY_SECONDS
    while not _holds(is_ready):
        if program.process.poll() is not None or time.monotonic() > deadline:
            program.stop()
            raise ProgramError(f"{program.name} is not ready:\n{program.log}")
        time.sleep(_POLL_SECONDS)


def _holds(is_ready: Callable[[], bool]) -> bool:
    try:
        return is_ready()
    except (httpx.TransportError, ValueError, KeyError):
        return False
