"""The way into the engine process: `python -m lead.engine FD GRAMMARS LEVEL`, started by `process`."""

from shared.exits import end_with_parent_only
from shared.program_start import run_program


def main() -> None:
    """Run `lead.engine.worker.main`, whose imports take a second."""
    end_with_parent_only()  # the front closes the pipe
    run_program("lead.engine.worker")


if __name__ == "__main__":
    main()
