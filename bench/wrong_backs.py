"""Many backs in one process, each of which answers every update with tokens that are wrong."""

import argparse
import asyncio
import ipaddress
import json
import logging
import os
import random
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect

from bench.until_signal import until_signal
from shared import cpus
from shared.llama.vocabulary import Vocabulary
from shared.logs import configure_logging
from shared.models.builtin import builtin_draft
from shared.protocol import (
    PROTOCOL_VERSION,
    Extend,
    Hello,
    LeadMessage,
    Open,
    VocabularyId,
    Welcome,
    parse_lead_message,
)

log = logging.getLogger("bench.wrong_backs")

_N_TOKENS = 4


def wrong_draft(message: LeadMessage, n_vocab: int, rng: random.Random) -> str | None:
    """Random tokens to follow those of `message`, if it has any."""
    match message:
        case Open():
            base = len(message.tokens)
        case Extend():
            base = message.start + len(message.tokens)
        case _:
            return None
    tokens = [rng.randrange(n_vocab) for _ in range(_N_TOKENS)]
    return json.dumps({"type": "draft", "sequence": message.sequence, "base": base, "tokens": tokens})


async def join(url: str, name: str, address: str, vocabulary: VocabularyId) -> ClientConnection:
    """Connect from a loopback `address` and be welcomed."""
    connection = await connect(url, proxy=None, local_addr=(address, 0))
    hello = Hello(protocol=PROTOCOL_VERSION, name=name, vocabulary=vocabulary, n_ctx=0, n_sequences=64)
    await connection.send(hello.model_dump_json())
    answer = parse_lead_message(await connection.recv())
    assert isinstance(answer, Welcome), answer
    return connection


async def answer_all(connection: ClientConnection, n_vocab: int, rng: random.Random) -> None:
    """Until the lead closes the connection."""
    async for frame in connection:
        if draft := wrong_draft(parse_lead_message(frame), n_vocab, rng):
            await connection.send(draft)


def main() -> None:
    """Answer until a signal."""
    parser = argparse.ArgumentParser(prog="bench.wrong_backs", description=__doc__)
    parser.add_argument("--lead", required=True)
    parser.add_argument("--n", type=int, default=64, help="number of backs")
    parser.add_argument("--model", type=Path, help="for its vocabulary; without it the built-in draft model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpus")
    arguments = parser.parse_args()
    configure_logging("info")
    if arguments.cpus:
        cpus.pin(cpus.parse_cpus(arguments.cpus))
    asyncio.run(until_signal(_run(arguments)))


async def _run(arguments: argparse.Namespace) -> None:
    vocabulary = Vocabulary.load(arguments.model or builtin_draft())
    url = f"ws{arguments.lead.removeprefix('http')}/v1/speculation"
    identity = vocabulary.identify()
    # A lead lets only so many join from one address in a short time.
    addresses = [
        ipaddress.IPv4Address("127.1.0.0") + os.getpid() % 30_000 * 256 + i for i in range(arguments.n)
    ]
    connections = [
        await join(url, f"wrong-{i}", str(address), identity) for i, address in enumerate(addresses)
    ]
    log.info("drafting for %s with %d backs", arguments.lead, arguments.n)
    rng = random.Random(arguments.seed)  # noqa: S311 - a seeded choice is wanted
    await asyncio.gather(*(answer_all(each, vocabulary.n_tokens, rng) for each in connections))


if __name__ == "__main__":
    main()
