"""Programs make their output on a terminal harmless: checked on the source.

The formatter does this for logs (tests/shared/test_logs.py), `shared.exits` for results and progress, and the
code that draws them for answers.
"""

import ast

from tests.test_mirror import PACKAGES, ROOT

SAY = {"sys.exit", "SystemExit", "sys.stderr.write", "sys.stdout.write", "print"}
HARMLESS = {"sanitize", "one_line", "size_text"}
OWN = {"program", "prog", "PROGRAM", "strerror"}
"""The names of programs, and the system's messages about errors."""
FOR_PROGRAMS = {"lead/router/memory_need.py"}
"""Modules that print JSON for the process that has started them."""


def quoted(said):
    """The parts of an expression that may quote a peer, a file or a model."""
    match said:
        case ast.Constant():
            return
        case ast.JoinedStr(values):
            for value in values:
                yield from quoted(value)
        case ast.FormattedValue(value):
            yield from quoted(value)
        case ast.Call(ast.Name(name)) if name in HARMLESS:
            return
        case ast.Name(name) | ast.Attribute(attr=name) if name in OWN:
            return
        case _:
            yield ast.unparse(said)


def said_as_it_is(source):
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and (name := ast.unparse(call.func)) in SAY:
            for said in call.args[:1]:
                is_text = isinstance(said, ast.JoinedStr | ast.BinOp) or ast.unparse(said).startswith("str(")
                if is_text or "write" in name or name == "print":
                    yield from quoted(said)


def test_nothing_is_said_that_has_not_been_made_harmless():
    found = {
        name: told
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (name := path.relative_to(ROOT).as_posix()) not in FOR_PROGRAMS
        and (told := list(said_as_it_is(path.read_text())))
    }
    assert found == {}


def test_what_is_quoted_is_seen():
    for said in ("str(error)", 'f"{self.program}: {error}"', '"a" + name', 'f"{name}"'):
        assert list(said_as_it_is(f"import sys\nsys.exit({said})")), said
    assert list(said_as_it_is("print(name)"))
    assert list(said_as_it_is('sys.exit(f"{PROGRAM}: {sanitize(str(error))}")')) == []
