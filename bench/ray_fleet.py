"""`python -m bench.ray_fleet --port P NAME=VALUE …`: `serve run fleet.app:app NAME=VALUE …` on a free port.

A Ray of its own on this machine, until a signal; needs the extra `ray`.
"""

import argparse
import asyncio
import os
import signal
import sys

from fleet.settings import FleetSettings

_OBJECT_STORE = 80_000_000
"""Bytes; the least that Ray takes. Requests and answers are smaller."""


def main() -> None:
    """Say `serving` on standard error once all deployments are there."""
    parser = argparse.ArgumentParser(prog="bench.ray_fleet", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cpus", type=int, default=8, help="that Ray may reserve, whatever there are")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # on loopback
    import ray  # noqa: PLC0415 - an extra
    from ray import serve  # noqa: PLC0415

    from fleet.app import app  # noqa: PLC0415 - imports Ray

    named = dict(each.split("=", 1) for each in options.settings)
    ray.init(num_cpus=options.cpus, include_dashboard=False, object_store_memory=_OBJECT_STORE)
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    serve.run(app(FleetSettings.model_validate(named)))
    print("serving", file=sys.stderr, flush=True)
    asyncio.run(_until_signal())
    serve.shutdown()
    ray.shutdown()


async def _until_signal() -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()


if __name__ == "__main__":
    main()
