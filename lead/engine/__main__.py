"""Entry point of the engine process: `python -m lead.engine FD GRAMMARS LEVEL`."""

from shared.descriptors import raise_limit
from shared.exits import end_with_parent_only
from shared.program_start import run_program


def main() -> None:
    """Prepare the process; then run `lead.engine.worker.main`, whose imports take a second."""
    end_with_parent_only()  # the front closes the pipe
    raise_limit()  # the front may have few descriptors while it starts this
    run_program("lead.engine.worker")


if __name__ == "__main__":
    main()
