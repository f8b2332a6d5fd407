"""The way into the process that forks tokenizers: `python -m lead.tokenizer FD`; `fork_server` starts it."""

import signal
import socket
import sys


def main() -> None:
    """As `lead.tokenizer.forking.serve_forks`, whose imports take a while."""
    # Ctrl-C reaches the whole process group; the front decides when this process ends, by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from lead.tokenizer.forking import serve_forks  # noqa: PLC0415

    serve_forks(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
