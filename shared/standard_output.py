"""Writing a result to standard output, whose reader may be gone."""

import os
import sys
from typing import NoReturn

BROKEN_PIPE = 141
"""128 + SIGPIPE: the exit status of a program whose reader has closed the pipe, as in shells."""


def print_text(text: str) -> None:
    """Write it, and a line break.

    Ends the program if that cannot be done: quietly where nobody reads it (`lead plan | head -1`), else with
    status 1 and a sentence.
    """
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        end_unread()
    except OSError as error:
        discard_stdout()
        sys.exit(f"the result cannot be written: {error.strerror}")


def end_unread() -> NoReturn:
    """End the program, as its reader has closed the pipe."""
    discard_stdout()
    sys.exit(BROKEN_PIPE)


def discard_stdout() -> None:
    """Nobody reads it any more; without this the interpreter complains when it flushes it at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
