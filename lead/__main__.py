"""Entry points of `lead` and `lead-llama-server`: the rest is imported once Ctrl-C exits quietly."""

import sys

from shared.exits import QuietInterrupts
from shared.home_folder import ensure_home
from shared.imports import run_program
from shared.standard_streams import keep_from_children, open_closed_streams


def main() -> None:
    _run("lead.cli")


def main_as_llama_server() -> None:
    _run("lead.llama_server_cli")


def _run(program: str) -> None:
    open_closed_streams()
    ensure_home()
    with QuietInterrupts():
        if sys.platform == "win32":
            sys.exit("lead needs Linux or macOS: on Windows, WSL 2")
        keep_from_children()
        run_program(program)


if __name__ == "__main__":
    main()
