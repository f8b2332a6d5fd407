"""Entry points of `lead` and `lead-llama-server`: the rest is imported once Ctrl-C exits quietly."""

from shared.exits import QuietInterrupts
from shared.imports import run_program


def main() -> None:
    with QuietInterrupts():
        run_program("lead.cli")


def main_as_llama_server() -> None:
    with QuietInterrupts():
        run_program("lead.llama_server_cli")


if __name__ == "__main__":
    main()
