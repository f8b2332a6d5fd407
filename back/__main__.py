"""The way into the program `back`, which is not imported before Ctrl-C is safe."""

from shared.exits import QuietInterrupts


def main() -> None:
    with QuietInterrupts():
        from back import program  # noqa: PLC0415  (takes a second)

        program.main()


if __name__ == "__main__":
    main()
