"""`chat`: settings, wiring, exit status.

0: all went well. 2: a setting is wrong. With a pipe as input also 1: something failed, and 130: Ctrl-C.
"""

import io
import os
import sys
from typing import TextIO

import platformdirs

from chat.client import LeadClient
from chat.conversation import Conversation
from chat.lines import Lines, PipedLines
from chat.render import Screen
from chat.repl import Repl
from chat.settings import ChatSettings
from shared.errors import ConfigError

EXIT_WRONG_SETTING = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


def main() -> None:
    settings = ChatSettings.from_command_line()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Bytes that are no text, and characters that the terminal has not, become question marks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        sys.exit(run(settings, sys.stdin, sys.stdout, sys.stderr))
    except ConfigError as error:
        sys.stderr.write(f"chat: {error}\n")
        sys.exit(EXIT_WRONG_SETTING)
    except BrokenPipeError:
        # Whoever read us has seen enough (`chat | head -1`). The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def run(settings: ChatSettings, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> int:
    """Hold one conversation; the exit status."""
    screen = Screen(stdout, stderr, os.environ)
    conversation = Conversation(model=settings.model, system=settings.system, sampling=settings.sampling)
    interactive = stdin.isatty()
    lines = _typed_lines(settings, screen) if interactive else PipedLines(stdin)
    with LeadClient(
        settings.lead, api_key=settings.read_key(), timeout_s=settings.timeout, tls=settings.tls()
    ) as client:
        repl = Repl(client, conversation, screen, interactive=interactive)
        repl.run(lines)
    return 1 if repl.n_failed and not interactive else 0


def _typed_lines(settings: ChatSettings, screen: Screen) -> Lines:
    from chat import prompt  # noqa: PLC0415  (a quarter of the start-up time, and a pipe needs none of it)

    history = prompt.forgetful_history()
    if settings.history:
        path = platformdirs.user_state_path("llama-duo") / "chat-history"
        try:
            history = prompt.open_history(path)
        except OSError as error:
            screen.note(f"What you type is not kept for the next session: {error}")
    return prompt.PromptLines(history)


if __name__ == "__main__":
    main()
