"""Start SMG (Shepherd Model Gateway) before several leads, closed to everybody without a key.

    router.py --key-file FILE --worker-urls http://127.0.0.1:5555 http://127.0.0.1:5556 [SMG's own options]

FILE has the clients' keys, one per line, the same as the leads' `--api-key-file`. A request is passed on with
its own key, so leads tell clients apart. The first key is also SMG's own, for asking leads about their load.
Keys are handed over in this process: on a command line every user of the machine could read them.

SMG's control API (adding workers, among others) is open to anyone unless it has a key of its own. This
program draws a key at each start and shows it to nobody. Add and remove leads with `--discovery-file`.
"""

import argparse
import logging
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from smg.launch_router import launch_router, parse_router_args
from smg.router_args import RouterArgs

DEFAULTS = (
    # Everything on loopback: haproxy.cfg is what others reach, since SMG shows some paths to anybody.
    *("--host", "127.0.0.1", "--prometheus-host", "127.0.0.1"),
    # A lead has few slots: one that has two requests more than the others is busy, whatever it has cached.
    *("--policy", "cache_aware", "--balance-abs-threshold", "2", "--balance-rel-threshold", "1.1"),
    *("--health-check-interval-secs", "2", "--health-failure-threshold", "2"),
    # Leads render and tokenize by themselves, and keep no answers for a later request.
    *("--disable-tokenizer-autoload", "--history-backend", "none", "--max-background-responses", "0"),
)
"""SMG's options. The command line can override each option."""


def read_keys(path: Path) -> list[str]:
    """Return the keys of a file, one per line. As in leads, empty lines and comments (`#`) are skipped."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def router_args(keys: Sequence[str], arguments: Sequence[str]) -> RouterArgs:
    """Return SMG's settings for these keys; raises SystemExit for options that SMG does not know."""
    settings = parse_router_args([*DEFAULTS, *arguments])
    settings.api_key, *others = keys
    settings.tenant_api_keys = [(f"client-{number}", key) for number, key in enumerate(others, 2)]
    settings.control_plane_api_keys = [("router", "router", secrets.token_urlsafe(32), "admin")]
    return settings


def main() -> None:
    """Run SMG until a signal ends it."""
    parser = argparse.ArgumentParser(prog="router.py", allow_abbrev=False, add_help=False)
    parser.add_argument("--key-file", type=Path, required=True)
    own, rest = parser.parse_known_args()
    keys = read_keys(own.key_file)
    if not keys:
        sys.exit(f"router.py: {own.key_file} has no key. Write a client's key on each line")
    logging.basicConfig(level=logging.INFO)
    launch_router(router_args(keys, rest))


if __name__ == "__main__":
    main()
