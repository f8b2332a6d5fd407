import pytest

from chat.commands import COMMANDS, Command, is_command, parse_assignment, parse_command
from chat.errors import CommandError


@pytest.mark.parametrize(
    ("line", "command"),
    [
        *((":new", Command("new", "")), (":NEW", Command("new", "")), (": new ", Command("new", ""))),
        *((":quit", Command("quit", "")), (":q", Command("quit", "")), (":exit", Command("quit", ""))),
        (":system", Command("system", "")),
        (":system  You are a pirate: arr!", Command("system", "You are a pirate: arr!")),
        (":set temperature 0.2", Command("set", "temperature 0.2")),
        (":system\tYou", Command("system", "You")),
    ],
)
def test_a_command_is_parsed(line, command):
    assert parse_command(line) == command


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.names[0])
def test_each_name_leads_to_its_command(entry):
    assert {parse_command(f":{name}").name for name in entry.names} == {entry.names[0]}


@pytest.mark.parametrize("line", ["hello", " :)", "a :new"])
def test_a_line_without_a_leading_colon_is_not_a_command(line):
    assert not is_command(line)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (":sats", r"no command :sats\. Did you mean :stats"),
        (":bye", ":help lists them"),
        (":)", "put a space before the colon"),
        (":", "A command needs a name"),
        (":comp", r"no command :comp\. Did you mean :compare\?"),
    ],
)
def test_an_unknown_command_is_explained(line, hint):
    with pytest.raises(CommandError, match=hint):
        parse_command(line)


def test_a_command_without_argument_refuses_one():
    with pytest.raises(CommandError, match=":new takes no argument"):
        parse_command(":new hello")


@pytest.mark.parametrize(
    ("argument", "assignment"),
    [
        ("temperature 0.2", ("temperature", "0.2")),
        ("temperature=0.2", ("temperature", "0.2")),
        ("temperature = 0.2", ("temperature", "0.2")),
        ("temperature", ("temperature", "")),
        ("temperature   0.2 ", ("temperature", "0.2")),
    ],
)
def test_an_assignment_has_a_name_and_a_value(argument, assignment):
    assert parse_assignment(argument) == assignment
