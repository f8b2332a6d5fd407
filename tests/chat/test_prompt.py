import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from chat.prompt import CommandCompleter, PromptReader, open_history

CTRL_C = "\x03"
CTRL_D = "\x04"


@pytest.fixture
def keyboard():
    with create_pipe_input() as source:
        yield source


def lines_from(keyboard, history=None):
    return PromptReader(history, CommandCompleter({}), lambda: "", keyboard, DummyOutput())


def test_typed_lines_are_saved_in_the_history_file(keyboard, tmp_path):
    path = tmp_path / "state" / "chat-history"
    keyboard.send_text("a question\r")
    lines_from(keyboard, open_history(path)).read()
    assert list(FileHistory(path).load_history_strings()) == ["a question"]


def test_the_history_is_readable_only_by_its_owner(tmp_path):
    path = tmp_path / "state" / "chat-history"
    open_history(path)
    assert path.stat().st_mode & 0o077 == 0


def test_a_history_that_cannot_be_written_is_reported_at_the_start(tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="state"):
        open_history(tmp_path / "state" / "chat-history")


TYPED = {
    "Alt-Enter starts a new line": ("one\x1b\rtwo\r", "", "one\ntwo"),
    "Alt-Enter typed during an answer": ("one\x1b\ntwo\r", "", "one\ntwo"),
    "a pasted text is one message": ("\x1b[200~one\ntwo\x1b[201~\r", "", "one\ntwo"),
    "a backslash at the end of a line starts a new one": ("one\\\rtwo\r", "", "one\ntwo"),
    "a draft can be changed": ("!\r", "hello", "hello!"),
    "a draft that is dropped does not come back": (f"{CTRL_C}hi\r", "hello", "hi"),
    "Ctrl-C empties the line": (f"never mind{CTRL_C}hello\r", "", "hello"),
}


@pytest.mark.parametrize(("keys", "draft", "line"), TYPED.values(), ids=TYPED)
def test_keys_make_a_line(keyboard, keys, draft, line):
    keyboard.send_text(keys)
    assert lines_from(keyboard).read(draft) == line


@pytest.mark.parametrize(("key", "error"), [(CTRL_C, KeyboardInterrupt), (CTRL_D, EOFError)])
def test_a_key_on_an_empty_line_is_raised(keyboard, key, error):
    keyboard.send_text(key)
    with pytest.raises(error):
        lines_from(keyboard).read()


NAMES = {"load": lambda: ["talk", "walk"], "model": lambda: ["big", "b\x1b[2J"]}


def offered(typed, *, asked=True):
    event = CompleteEvent(completion_requested=asked)
    return {found.text for found in CommandCompleter(NAMES).get_completions(Document(typed), event)}


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        *((":st", {":stats"}), (":se", {":set", ":seed"}), (":set te", {"temperature"})),
        *((":load t", {"talk"}), (":load ", {"talk", "walk"}), (":new ", set())),
        *(("so :st", set()), (":st\n:st", set())),
    ],
)
def test_commands_and_their_arguments_are_completed(typed, found):
    assert offered(typed) == found


def test_the_server_is_asked_for_its_models_only_when_tab_is_pressed():
    assert offered(":model b", asked=False) == set()


def test_a_name_with_control_characters_is_not_completed():
    assert offered(":model b") == {"big"}
