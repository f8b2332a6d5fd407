import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAB = ("lab/doctor", "lab/measuring", "lab/planning", "lab/simulation")
PROGRAMS = [("lead", "shared", *LAB), ("back", "shared"), ("chat", "shared")]
MODULES_THAT_MAY_SHARE_A_NAME = {
    "errors": "the exceptions of one program, next to those of all",
    "rings": "the rings of one program, next to those of all",
}
"""The names, each with the reason."""
SEAMS = re.findall(r"^    (\w+)  +\S", (ROOT / "lead/rings/table.py").read_text(), re.MULTILINE)
"""Modules with which rings plug in. Each ring has some of them."""


def modules(program):
    for package in program:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name not in {"__init__.py", "__main__.py"}:
                yield path.relative_to(ROOT)


def types(module):
    """The names of a module's classes and type aliases, without the underscore of private ones."""
    tree = ast.parse((ROOT / module).read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and is_type_name(target.id):
            names.add(target.id)
    return {name.lstrip("_") for name in names}


def is_type_name(name):
    return name.lstrip("_")[:1].isupper() and not name.isupper()


def used_twice(names):
    """The names that several modules use, from pairs of a name and a module."""
    found = defaultdict(set)
    for name, module in names:
        found[name].add(module.as_posix())
    return {name: sorted(places) for name, places in found.items() if len(places) > 1}


def types_used_twice(packages):
    return used_twice((name, module) for module in modules(packages) for name in types(module))


def modules_used_twice(packages):
    return used_twice((module.stem, module) for module in modules(packages) if module.stem not in SEAMS)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0])
def test_no_two_types_of_a_program_have_the_same_name(program):
    assert not types_used_twice(program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0])
def test_no_two_modules_of_a_program_have_the_same_name(program):
    assert modules_used_twice(program).keys() <= MODULES_THAT_MAY_SHARE_A_NAME.keys()


def test_each_listed_exception_is_one():
    found = set().union(*map(modules_used_twice, PROGRAMS))
    assert found == MODULES_THAT_MAY_SHARE_A_NAME.keys()
