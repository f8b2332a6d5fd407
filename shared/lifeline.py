"""Ends a process together with its parent, even if it is in native code, in an endless loop, or stopped.

The process inherits one end of a pipe, its lifeline. Only its parent has the other end, and never writes to
it. On Linux, the kernel kills the process when that end is closed. PR_SET_PDEATHSIG would end the process
with the thread that started it, and would end a worker with the fork server that forked it.
"""

import functools
import os
import select
import signal
import threading

_F_SETSIG = 10
"""Linux's fcntl command that sets the signal for events on a descriptor."""

_inherited: list[int] = []


@functools.cache
def lifeline() -> int:
    """Return the descriptor for children to inherit; the pipe's other end is open until this process ends."""
    reading, _ = os.pipe()
    return reading


def end_with(descriptor: int) -> None:
    """End this process, whatever it is doing, when the other end of the pipe `descriptor` is closed.

    The pipe must be empty, and stay empty.
    """
    _inherited[:] = [descriptor]
    try:
        _have_kernel_end_with(descriptor)
    except (ImportError, AttributeError, OSError):  # not on Linux
        threading.Thread(target=_wait_for, args=(descriptor,), name="lifeline", daemon=True).start()


def inherit_lifeline() -> None:
    """End this forked process with the lifeline of the process that forked it, if there is such a
    lifeline.
    """
    for descriptor in _inherited[:]:
        end_with(descriptor)


def _have_kernel_end_with(descriptor: int) -> None:
    """Let the kernel end this process; raises ImportError, AttributeError or OSError if it cannot."""
    import fcntl  # noqa: PLC0415 - not on Windows

    # A pipe that has been opened once has one owner, who gets the signal, however many processes share it.
    own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK)
    os.set_inheritable(own, True)  # by what the process becomes: others that it starts get nothing of it
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | fcntl.FASYNC)
    poll = select.poll()
    poll.register(own, 0)
    if poll.poll(0):  # it has been closed before
        os._exit(1)


def _wait_for(descriptor: int) -> None:
    os.read(descriptor, 1)
    os._exit(1)
