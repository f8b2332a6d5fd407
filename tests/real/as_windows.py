"""`python as_windows.py MODULE …`: run a module's `main` without most features that Windows lacks.

The standard library and packages of other projects are imported before the platform seems to be Windows.
They do run on Windows.
"""

import asyncio.unix_events
import ctypes
import importlib
import importlib.abc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

POSIX_MODULES = {"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"}
OTHERS = """
asyncio gguf httpx httpx_sse jinja2.sandbox llama_cpp llama_cpp.llama_cpp_ext llguidance logging.config
multiprocessing.connection numpy platformdirs prompt_toolkit psutil pydantic_settings rich.live rich.markdown
websockets.asyncio.client
"""
MISSING = {
    os: """
    fork forkpty getegid geteuid getgid getloadavg getuid killpg nice register_at_fork sched_getaffinity
    sched_setaffinity setsid wait3 wait4
    """,
    signal: """
    ITIMER_PROF SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGPROF SIGQUIT SIGUSR1 SIGUSR2 pthread_kill setitimer
    """,
    socket: "recv_fds send_fds SO_REUSEPORT",
}


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - as importlib calls it
        if name in POSIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class WindowsLibrary(ctypes.CDLL):
    def __init__(self, name, *arguments, **options):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(None if name == "msvcrt" else name, *arguments, **options)


class WindowsPopen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        if options.get("pass_fds") or options.get("preexec_fn"):
            raise ValueError("pass_fds is not supported on Windows")
        super().__init__(*arguments, **options)


def refuse(*_):
    raise NotImplementedError


def become_windows():
    for name in OTHERS.split():
        importlib.import_module(name)
    for module, names in MISSING.items():
        for name in names.split():
            vars(module).pop(name, None)
    for name in POSIX_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    loop = asyncio.unix_events._UnixSelectorEventLoop
    loop.add_signal_handler = loop.remove_signal_handler = refuse
    ctypes.CDLL, subprocess.Popen = WindowsLibrary, WindowsPopen
    sys.platform = "win32"


if __name__ == "__main__":
    module, *sys.argv[1:] = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    become_windows()
    importlib.import_module(module).main()
