"""What the benches' own backs have in common as programs: their options, their lead, how they say hello."""

import argparse
from pathlib import Path

from shared import cpus
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.models.builtin import builtin_draft
from shared.protocol import PROTOCOL_VERSION, Hello


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """The options that all of them have."""
    created = argparse.ArgumentParser(prog=module, description=description)
    created.add_argument("--lead", required=True)
    created.add_argument("--model", type=Path, help="for its vocabulary; without it the built-in draft model")
    created.add_argument("--seed", type=int, default=0)
    created.add_argument("--cpus")
    return created


def parse(created: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line; log, and run on the cores that it names. `model` is always there."""
    arguments = created.parse_args()
    configure_logging("info")
    if arguments.cpus:
        cpus.pin(cpus.parse_cpus(arguments.cpus))
    arguments.model = arguments.model or builtin_draft()
    return arguments


def url(lead: str) -> str:
    """Where backs connect to the lead at an HTTP address."""
    return f"ws{lead.removeprefix('http')}/v1/speculation"


def hello(name: str, vocabulary: Vocabulary, *, n_ctx: int = 0, n_sequences: int = 64) -> Hello:
    """Of a back with this name."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        name=name,
        vocabulary=vocabulary.identify(),
        n_ctx=n_ctx,
        n_sequences=n_sequences,
    )
