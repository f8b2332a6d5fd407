"""The way into the program `back`, which is not imported before Ctrl-C is safe."""

from shared.exits import QuietInterrupts
from shared.home_folder import ensure_home
from shared.imports import run_program
from shared.standard_streams import open_closed_streams


def main() -> None:
    open_closed_streams()
    ensure_home()
    with QuietInterrupts():
        run_program("back.cli")


if __name__ == "__main__":
    main()
