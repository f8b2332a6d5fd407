"""The way into the program `back`, which is not imported before Ctrl-C is safe."""

from shared.exits import QuietInterrupts
from shared.imports import import_program


def main() -> None:
    with QuietInterrupts():
        import_program("back.program").main()


if __name__ == "__main__":
    main()
