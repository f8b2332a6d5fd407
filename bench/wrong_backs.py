"""Many backs in one process, each of which answers every update with tokens that are wrong."""

import argparse
import asyncio
import ipaddress
import json
import logging
import os
import random

from websockets.asyncio.client import ClientConnection, connect

from bench import back_program
from bench.until_signal import until_signal
from shared.llama.vocabulary import Vocabulary
from shared.protocol import Extend, Hello, LeadMessage, Open, Welcome, parse_lead_message

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


async def join(url: str, hello: Hello, address: str) -> ClientConnection:
    """Connect from a loopback `address` and be welcomed."""
    connection = await connect(url, proxy=None, local_addr=(address, 0))
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
    parser = back_program.parser("bench.wrong_backs", __doc__)
    parser.add_argument("--n", type=int, default=64, help="number of backs")
    asyncio.run(until_signal(_run(back_program.parse(parser))))


async def _run(arguments: argparse.Namespace) -> None:
    vocabulary = Vocabulary.load(arguments.model)
    url = back_program.url(arguments.lead)
    # A lead lets only so many join from one address in a short time.
    addresses = [
        ipaddress.IPv4Address("127.1.0.0") + os.getpid() % 30_000 * 256 + i for i in range(arguments.n)
    ]
    connections = [
        await join(url, back_program.hello(f"wrong-{i}", vocabulary), str(address))
        for i, address in enumerate(addresses)
    ]
    log.info("drafting for %s with %d backs", arguments.lead, arguments.n)
    rng = random.Random(arguments.seed)  # noqa: S311 - a seeded choice is wanted
    await asyncio.gather(*(answer_all(each, vocabulary.n_tokens, rng) for each in connections))


if __name__ == "__main__":
    main()
