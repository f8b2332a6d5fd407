"""`python -m fleet.child PROGRAM …`: one of our programs, which ends when its standard input does.

A replica that is killed cannot stop its lead; its end of the pipe closes whatever happens to it.
"""

import os
import runpy
import sys
import threading


def main() -> None:
    """Run `python -m PROGRAM …` in this process."""
    threading.Thread(target=_exit_with_stdin, name="stdin", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _exit_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 1 << 10):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
