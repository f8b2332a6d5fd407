"""Entry points of `lead` and `lead-llama-server`: the rest is imported once Ctrl-C exits quietly."""

from shared.exits import QuietInterrupts


def main() -> None:
    with QuietInterrupts():
        from lead import cli  # noqa: PLC0415  (takes a second)

        cli.main()


def main_as_llama_server() -> None:
    with QuietInterrupts():
        from lead import llama_server_cli  # noqa: PLC0415  (as above)

        llama_server_cli.main()


if __name__ == "__main__":
    main()
