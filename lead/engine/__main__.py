"""The way into the engine process: `python -m lead.engine FD GRAMMARS LEVEL`, started by `process`."""

import signal

from shared.imports import run_program


def main() -> None:
    """Run `lead.engine.worker.main`, whose imports take a second."""
    # Ctrl-C reaches the whole process group; the front decides when the engine ends, by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_program("lead.engine.worker")


if __name__ == "__main__":
    main()
