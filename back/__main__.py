"""The way into the program `back`, which is not imported before Ctrl-C is safe."""

from shared.exits import QuietInterrupts
from shared.imports import run_program


def main() -> None:
    with QuietInterrupts():
        run_program("back.cli")


if __name__ == "__main__":
    main()
