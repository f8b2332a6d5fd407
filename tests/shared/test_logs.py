import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared import logs
from shared.logs import JsonFormatter, TextFormatter, UnblockedHandler, configure_logging


@pytest.fixture
def restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def record(message, *arguments, **extra):
    return logging.makeLogRecord(
        {"name": "lead", "levelname": "INFO", "msg": message, "args": arguments, "created": 0.5, **extra}
    )


def test_a_line_is_an_object():
    assert json.loads(JsonFormatter().format(record("listening on %d", 80))) == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "info",
        "logger": "lead",
        "message": "listening on 80",
    }


HOSTILE = "\x1b[2J\u202e\u200f\x9b\n12:00:00 lead INFO: all well"


@pytest.mark.parametrize("formatter", [TextFormatter("%(name)s: %(message)s"), JsonFormatter()])
def test_a_quoted_text_neither_controls_a_terminal_nor_poses_as_an_event(formatter):
    for found in (record("%s", HOSTILE), record("x", exc_info=(ValueError, ValueError(HOSTILE), None))):
        shown = formatter.format(found)
        assert not set("\x1b\u202e\u200f\x9b") & set(shown)
        assert "\n12:00:00" not in shown


def test_fields_are_keys():
    assert json.loads(JsonFormatter().format(record("x", fields=lambda: {"status": 200})))["status"] == 200


def test_an_exception_is_a_trace():
    error = ZeroDivisionError("a bug")
    line = JsonFormatter().format(record("x", exc_info=(type(error), error, None)))
    assert "ZeroDivisionError: a bug" in json.loads(line)["trace"]


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("as_json", [True, False])
def test_the_log_is_json_if_that_is_wanted(capsys, as_json):
    configure_logging("info", as_json=as_json)
    logging.getLogger("lead").info("hello")
    shown = capsys.readouterr().err
    assert shown.startswith('{"time": ') == as_json
    assert "hello" in shown


def test_a_message_that_cannot_be_formatted_ends_nothing(capsys):
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as out, os.fdopen(writer, "w", encoding="utf-8") as stream:
        handler = UnblockedHandler(stream)
        handler.emit(record("%d", "no number"))
        handler.emit(record("goes on"))
        assert out.read(100) == b"goes on\n"
        handler.close()
    assert "no number" in capsys.readouterr().err


def test_a_terminal_that_nobody_reads_blocks_nothing():
    reader, writer = os.openpty()
    with os.fdopen(reader, "rb", 0), os.fdopen(writer, "w", encoding="utf-8") as stream:
        handler = UnblockedHandler(stream)
        for number in range(2000):
            handler.emit(record("%d %s", number, "x" * 1000))
        handler.close()


def test_a_line_that_is_longer_than_a_pipe_is_written_as_it_is_read(monkeypatch):
    monkeypatch.setattr(logs, "_N_TRIES", 10**6)
    reader, writer = os.pipe()
    text = "x" * 200_000
    with os.fdopen(reader, "rb") as out, os.fdopen(writer, "w", encoding="utf-8") as stream:
        handler = UnblockedHandler(stream)
        with ThreadPoolExecutor(1) as threads:
            line = threads.submit(out.readline)
            handler.emit(record("%s", text))
            stream.write("\n")
            stream.flush()
            assert line.result().decode() == f"{text}\n"


def test_a_pipe_that_nobody_reads_blocks_nothing_and_is_told_what_it_missed():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as out, os.fdopen(writer, "w", encoding="utf-8") as stream:
        handler = UnblockedHandler(stream)
        for number in range(2000):
            handler.emit(record("%d %s", number, "x" * 100))
        n_kept = len(out.read(1 << 20).splitlines())
        handler.emit(record("read again"))
        expected = [
            f"{2000 - n_kept} log lines are missing here because their reader was too slow",
            "read again",
        ]
        assert out.read(1 << 20).decode().splitlines() == expected


@pytest.mark.usefixtures("restored")
def test_a_connection_that_ends_during_a_ping_shows_no_traceback(capsys):
    configure_logging("info")
    error = ConnectionError("gone")
    logging.getLogger("websockets.client").error("keepalive ping failed", exc_info=error)
    assert capsys.readouterr().err == ""
