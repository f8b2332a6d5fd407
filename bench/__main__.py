"""`python -m bench PART …`: each part is a module of the laboratory with `main(arguments)`."""

import importlib
import sys
from collections.abc import Sequence

from shared.errors import ConfigError
from shared.exits import INTERRUPTED, quiet_interrupts
from shared.logs import configure_logging
from shared.search_paths import leave_working_directory

PARTS = {
    "speed": "tokens/s by policy, depth, draft cost, round trip and clients; llama-server for comparison",
    "overhead": "microseconds per step outside the model",
    "faults": "whether answers are lost or changed while processes die, networks fail and leads are replaced",
    "soak": "an hour of changing use and load: answers changed, deaths, memory, and how T(n) ends",
    "simulate": "what drafts are worth on hardware that is not here",
    "demo": "what `make demo` shows",
}

_MODULES = {"faults": "lab.campaign.program", "soak": "lab.campaign.soak"}
"""The modules of parts that are not in `lab.parts`."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part.

    Status 2 and the list of them if none is named, 1 if it cannot be run, 130 after Ctrl-C.
    """
    leave_working_directory()
    part, *rest = list(sys.argv[1:] if arguments is None else arguments) or [""]
    if part not in PARTS:
        sys.exit(_usage(part))
    with quiet_interrupts():
        module = importlib.import_module(_MODULES.get(part, f"lab.parts.{part}"))
    try:
        module.main(rest)
    except ConfigError as error:
        sys.exit(f"bench {part}: {error}")
    except KeyboardInterrupt:
        sys.stderr.write(f"\nbench {part}: cancelled\n")
        sys.exit(INTERRUPTED)


def _usage(part: str) -> int:
    wants_help = part in {"-h", "--help"}
    lines = [f"  {name:<14} {what}" for name, what in PARTS.items()]
    print(
        "usage: python -m bench PART …  (PART --help lists the options of a part)",
        *lines,
        sep="\n",
        file=sys.stdout if wants_help else sys.stderr,
    )
    return 0 if wants_help else 2


if __name__ == "__main__":
    configure_logging("warning")
    main()
