"""Early and abnormal ends of a program: Ctrl-C before it is handled, closed output, errors as messages.

Imports almost nothing, because it is used before the imports that take a second.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from shared.errors import DuoError
from shared.terminal import sanitize

INTERRUPTED = 130
"""128 + SIGINT, as in shells."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: the exit status of a program whose reader has closed the pipe, as in shells."""


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """A context in which Ctrl-C has the system's default effect, until the program installs a handler.

    While modules are imported, Python would print a traceback at best; an import in C, or in another thread,
    may even swallow it. A process that ignores Ctrl-C, as one that a script has started with `&`, continues
    to ignore it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except KeyboardInterrupt:  # an event loop that handled it has restored Python's handler
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, before)


def raise_interrupts() -> None:
    """Make Ctrl-C raise KeyboardInterrupt, for a program that then has to undo something."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # not if it is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_with_parent_only() -> None:
    """Ignore Ctrl-C and SIGTERM, which terminals and service managers send to all processes.

    For a process whose parent decides when it ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def exiting_in_words(program: str) -> Iterator[None]:
    """A context in which a DuoError ends the program with status 1 and its message, and Ctrl-C with 130."""
    try:
        yield
    except DuoError as error:
        sys.exit(f"{program}: {sanitize(str(error))}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def print_text(text: str) -> None:
    """Print text and a line break; quotes of peers and files in it cannot control the terminal.

    If that fails the program ends: quietly if the pipe was closed (`lead plan | head -1`), else with status 1
    and a message.
    """
    try:
        sys.stdout.write(f"{sanitize(text)}\n")
        sys.stdout.flush()
    except OSError as error:
        end_unwritten(error)


def end_unwritten(error: OSError) -> NoReturn:
    discard_stdout()
    if isinstance(error, BrokenPipeError):
        sys.exit(BROKEN_PIPE)
    sys.exit(f"the result cannot be written: {error.strerror}")


def discard_stdout() -> None:
    """Redirect stdout to nowhere after its reader has gone; otherwise the interpreter complains when it
    flushes it at the end.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(text: str) -> None:
    """Write a line of progress to stderr, sanitized as in `print_text`. Failures are ignored."""
    with suppress(OSError):
        sys.stderr.write(f"{sanitize(text)}\n")
        sys.stderr.flush()
