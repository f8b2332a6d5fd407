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
"""The exit status after Ctrl-C: 128 + SIGINT, as in shells."""
BROKEN_PIPE = 141
"""The exit status of a program whose reader has closed the pipe: 128 + SIGPIPE, as in shells."""


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Give Ctrl-C the system's default effect within this context, until the program installs a handler.

    While modules are imported, Python would print a traceback, or an import in C or in another thread would
    swallow the interrupt. A process that ignores Ctrl-C, such as one started with `&` in a script, still
    ignores it.
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
    """Make Ctrl-C raise KeyboardInterrupt, for a program that must undo something then."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # not if it is ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_with_parent_only() -> None:
    """Ignore Ctrl-C and SIGTERM, which terminals and service managers send to all processes.

    This is for a process that its parent ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def exiting_in_words(program: str) -> Iterator[None]:
    """End the program with a message: after a DuoError with status 1, after Ctrl-C with status 130."""
    try:
        yield
    except DuoError as error:
        sys.exit(f"{program}: {sanitize(str(error))}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def print_text(text: str) -> None:
    """Print text and a line break; quotes of peers and files in the text cannot control the terminal.

    If writing fails, the program ends: quietly if the pipe was closed (`lead plan | head -1`), otherwise with
    status 1 and a message.
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
    """Redirect stdout to nowhere after its reader has left, so that the interpreter's last flush does not
    fail.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(text: str) -> None:
    """Write a line of progress to stderr, sanitized as in `print_text`; failures are ignored."""
    with suppress(OSError):
        sys.stderr.write(f"{sanitize(text)}\n")
        sys.stderr.flush()
