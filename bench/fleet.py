"""`make fleet`: two leads with a back each behind SMG and HAProxy, as in deploy/fleet; then a chat."""

import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.foreground import run_in_foreground
from bench.processes import Program, start_back, start_lead
from bench.routers import haproxy, smg_python, start_haproxy, start_smg
from shared import cpus
from shared.errors import ConfigError
from shared.models.builtin import builtin_target
from shared.python_child import ChildProcess, child_command

_NOWHERE = "127.0.0.1:1"
"""Nothing listens there: HAProxy then chooses the leads by itself."""
_QUESTION = "Tell me a story about a fox who lives by the sea."
_WAYS = ("SMG and HAProxy", "SMG", "HAProxy")
"""The first one that can be had is shown."""


@dataclass(frozen=True)
class Fleet:
    """`ways`: URLs by what is between them and the leads."""

    ways: dict[str, str]
    key_file: Path


def main(arguments: Sequence[str]) -> None:
    """Start everything, then chat (or ask once, without a terminal). It takes no arguments."""
    if arguments:
        raise ConfigError("there are no options")
    if smg_python() is None and haproxy() is None:
        raise ConfigError("neither SMG (make router) nor haproxy (apt install haproxy) is installed")
    with running() as fleet:
        way = next(way for way in _WAYS if way in fleet.ways)
        _say(fleet, way)
        chat = child_command("chat", "--lead", fleet.ways[way], "--api-key-file", str(fleet.key_file))
        if sys.stdin.isatty() and sys.stdout.isatty():
            run_in_foreground(chat)
        elif ChildProcess([*chat, _QUESTION]).wait():
            raise ConfigError("the chat has failed")


@contextmanager
def running() -> Iterator[Fleet]:
    """The programs, each lead on a core of its own as far as there are enough."""
    cores = sorted(cpus.usable())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        key_file = Path(folder) / "api"
        key_file.write_text(f"{secrets.token_hex(24)}\n")
        key_file.chmod(0o600)
        back_key = secrets.token_hex(24)
        urls = []
        for number in range(2):
            lead, url = start_lead(*_lead_arguments(str(cores[number % len(cores)]), key_file, back_key))
            stack.enter_context(lead)
            urls.append(url)
            stack.enter_context(
                start_back(url, "--name", f"back-{number}", "--key", back_key, "--threads", "1")
            )
        ways = {"direct": urls[0]} | dict(_routers(stack, urls, key_file))
        yield Fleet(ways, key_file)


def _lead_arguments(core: str, key_file: Path, back_key: str) -> list[str]:
    return [
        *("--model", str(builtin_target()), "--alias", "fleet", "--cpus", core, "--threads", "1"),
        *("--api-key-file", str(key_file), "--back-key", back_key),
    ]


def _routers(stack: ExitStack, leads: Sequence[str], key_file: Path) -> Iterator[tuple[str, str]]:
    def run(started: tuple[Program, str]) -> str:
        program, url = started
        stack.enter_context(program)
        return url

    python, binary = smg_python(), haproxy()
    if binary:
        yield "HAProxy", run(start_haproxy(binary, leads, key_file, _NOWHERE))
    if python:
        smg = run(start_smg(python, leads, key_file))
        yield "SMG", smg
        if binary:
            yield "SMG and HAProxy", run(start_haproxy(binary, leads, key_file, smg))


def _say(fleet: Fleet, way: str) -> None:
    print("Two leads with the small model that ships with llama-duo, and a back for each. Ways in:\n")
    for name, url in fleet.ways.items():
        print(f"  {name:<16} {url}/v1")
    print(f"\nThe key is in {fleet.key_file} until this ends. The chat goes through {way}.\n", flush=True)
