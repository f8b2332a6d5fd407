"""Entry points of `lead` and `lead-llama-server`."""

import sys

from shared import way_in


def main() -> None:
    _run("lead.cli")


def main_as_llama_server() -> None:
    _run("lead.llama_server_cli")


def _run(program: str) -> None:
    if sys.platform == "win32":
        sys.exit("lead runs on Linux and macOS. On Windows, use WSL 2")
    way_in.run(program)


if __name__ == "__main__":
    main()
