"""The way into the program `chat`, which is not imported before Ctrl-C is safe."""

from shared.exits import QuietInterrupts


def main() -> None:
    with QuietInterrupts():
        from chat import program  # noqa: PLC0415  (takes its time)
    program.main()


if __name__ == "__main__":
    main()
