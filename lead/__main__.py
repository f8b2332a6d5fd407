"""Entry points of `lead` and `lead-llama-server`: the rest is imported once Ctrl-C exits quietly."""

from shared.exits import QuietInterrupts
from shared.imports import import_program


def main() -> None:
    with QuietInterrupts():
        import_program("lead.cli").main()


def main_as_llama_server() -> None:
    with QuietInterrupts():
        import_program("lead.llama_server_cli").main()


if __name__ == "__main__":
    main()
