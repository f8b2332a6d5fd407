"""The `chat` program: reads its settings, connects its parts and sets its exit status.

Status 0 is success, and 2 is an invalid option or setting. When chat is not interactive, 1 means that
a question failed, and 130 that Ctrl-C was pressed.
"""

import io
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TextIO

import platformdirs

from chat import report
from chat.answer import ChatAnswer
from chat.back_monitor import BackMonitor
from chat.client import LeadClient
from chat.conversation import ChatConversation, SavedConversations
from chat.errors import LeadError
from chat.line_reader import LineReader, PipeReader, without_echo
from chat.render import JsonScreen, Screen
from chat.repl import Repl
from chat.session import Session
from chat.settings import ChatSettings
from chat.streaming import AnswerStreamer
from shared.errors import ConfigError
from shared.exits import INTERRUPTED, discard_stdout, quiet_interrupts
from shared.terminal import sanitize

EXIT_FAILED = 1
EXIT_WRONG_SETTING = 2

_STDIN = "-"


def main() -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Invalid input bytes, and characters that the output cannot encode, are replaced.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        settings = ChatSettings.from_command_line().joined()
        sys.exit(run(settings, sys.stdin, sys.stdout, sys.stderr))
    except ConfigError as error:
        sys.stderr.write(f"chat: {sanitize(str(error))}\n")
        sys.exit(EXIT_WRONG_SETTING)
    except BrokenPipeError:
        # The reader of the pipe has closed it (`chat | head -1`).
        discard_stdout()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        # Network errors are LeadErrors, file errors ConfigErrors or CommandErrors: this error is from stdout.
        sys.stderr.write(f"chat: the answer cannot be written: {error.strerror}\n")
        discard_stdout()
        sys.exit(EXIT_FAILED)


def run(settings: ChatSettings, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> int:
    """Hold a conversation, or ask one question; return the exit status."""
    interactive = stdin.isatty() and not settings.question
    if interactive and settings.output == "json":
        raise ConfigError("--json is for questions on the command line or in a pipe")
    with ExitStack() as stack:
        client = stack.enter_context(_client(settings))
        monitor = BackMonitor(client.backs)
        if interactive:
            stack.enter_context(monitor)
        screen = _screen(settings, stdout, stderr, monitor, interactive=interactive)
        session = _session(settings, client, screen, stdin, interactive=interactive)
        store = SavedConversations(platformdirs.user_data_path("llama-duo") / "conversations")
        repl = Repl(client, session, screen, store, interactive=interactive)
        if interactive:
            names: Mapping[str, Callable[[], Sequence[str]]] = {
                "model": partial(_models, client),
                "load": store.names,
                "save": store.names,
            }
            status = partial(_status, session, monitor, screen)
            repl.run(_typed_lines(screen, names, status, kept=settings.history))
        elif settings.lines:
            repl.run(PipeReader(stdin))
        else:
            session.ask(_question(settings.question, stdin))
        return EXIT_FAILED if session.n_failed and not interactive else 0


def _client(settings: ChatSettings) -> LeadClient:
    def locate() -> tuple[str, ssl.SSLContext | None]:
        found = settings.located_again()
        return found.lead, found.tls()

    return LeadClient(
        settings.lead,
        api_key=settings.read_key(),
        timeout_s=settings.timeout,
        tls=settings.tls(),
        locate=locate if settings.is_joined else None,
    )


def _session(
    settings: ChatSettings, client: LeadClient, screen: Screen, stdin: TextIO, *, interactive: bool
) -> Session:
    streamer = AnswerStreamer(
        client,
        screen,
        wait_until_reachable=interactive,
        clock=time.monotonic,
        sleep=time.sleep,
        around=partial(without_echo, stdin),
    )
    conversation = ChatConversation(
        model=settings.model,
        system=settings.system,
        sampling=settings.sampling,
        images=settings.image,
    )
    return Session(streamer, conversation, screen, interactive=interactive)


def _status(session: Session, monitor: BackMonitor, screen: Screen) -> str:
    return report.status(session.conversation.model, session.stats, monitor.status, screen.columns)


def _question(words: list[str], stdin: TextIO) -> str:
    """Return the question in the arguments, with stdin in place of each `-`; without arguments, return stdin.

    Raises ConfigError if the question is empty.
    """
    question = " ".join(stdin.read() if word == _STDIN else word for word in words or [_STDIN]).strip()
    if not question:
        raise ConfigError("there is no question. Write it as an argument or to stdin")
    return question


def _screen(
    settings: ChatSettings, stdout: TextIO, stderr: TextIO, monitor: BackMonitor, *, interactive: bool
) -> Screen:
    if settings.output == "json":
        return JsonScreen(stdout, stderr, os.environ)
    if not settings.markdown or not stdout.isatty() or os.environ.get("TERM") == "dumb":
        return Screen(stdout, stderr, os.environ, with_summary=interactive)
    with quiet_interrupts():
        from chat.terminal_screen import TerminalScreen  # noqa: PLC0415  (importing rich is slow, and a pipe does not need it)

    def status(answer: ChatAnswer, columns: int) -> str:
        return report.progress(answer, monitor.status_during_an_answer, columns)

    return TerminalScreen(stdout, stderr, os.environ, status=status, with_summary=interactive)


def _typed_lines(
    screen: Screen,
    arguments: Mapping[str, Callable[[], Sequence[str]]],
    status: Callable[[], str],
    *,
    kept: bool,
) -> LineReader:
    # These imports take a quarter of the start-up time, and a pipe does not need them.
    with quiet_interrupts():
        from chat import prompt  # noqa: PLC0415
        from chat.prompt import CommandCompleter  # noqa: PLC0415

    history = None
    if kept:
        path = platformdirs.user_state_path("llama-duo") / "chat-history"
        try:
            history = prompt.open_history(path)
        except OSError as error:
            screen.note(f"The input history is not saved: {error}")
    return prompt.PromptReader(history, CommandCompleter(arguments), status)


def _models(client: LeadClient) -> list[str]:
    with suppress(LeadError):
        return client.models()
    return []
