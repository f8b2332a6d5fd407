"""The way into the program `chat`, which is not imported before Ctrl-C is safe."""

from shared.exits import QuietInterrupts
from shared.imports import import_program


def main() -> None:
    with QuietInterrupts():
        program = import_program("chat.program")
    program.main()


if __name__ == "__main__":
    main()
