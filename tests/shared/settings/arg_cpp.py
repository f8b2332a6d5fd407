"""llama-server's options, read from llama.cpp's common/arg.cpp in llama-cpp-python's source distribution.

`python -m tests.shared.settings.arg_cpp llama_cpp_python-VERSION.tar.gz` writes `llama_server_options.tsv`.
Each line has an option's spellings, the number of its values, and its environment variable.
"""

import itertools
import re
import sys
import tarfile
from pathlib import Path

LIST = Path(__file__).with_name("llama_server_options.tsv")

_MEMBER = "/vendor/llama.cpp/common/arg.cpp"
_OPTION = re.compile(r"add_opt\(common_arg\(")
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_SPELLINGS = re.compile(r"\{([^{}]*)\}\s*,\s*(?:\{([^{}]*)\})?")
_TEXT = re.compile(r'"([^"]*)"')
_HANDLER = re.compile(r"\]\(common_params\s*&[^,)]*([^)]*)\)")
_PROGRAM = re.compile(r"LLAMA_EXAMPLE_(\w+)")
_PROGRAMS, _NOT_OF = (re.compile(rf"\.set_{what}\(\{{([^}}]*)\}}\)") for what in ("examples", "excludes"))
_VARIABLE = re.compile(r'\.set_env\("(\w+)"\)')


def options(source: str) -> list[tuple[list[str], int, str]]:
    """(spellings, number of values, environment variable or an empty text) of each option of the server."""
    source = _COMMENT.sub("", source)
    starts = [match.end() for match in _OPTION.finditer(source)]
    return [
        (_spellings(text), _n_values(text), "".join(_VARIABLE.findall(text)))
        for start, end in itertools.pairwise([*starts, len(source)])
        if _is_servers(text := source[start:end])
    ]


def _spellings(text: str) -> list[str]:
    lists = _SPELLINGS.search(text)
    assert lists, text
    return [spelling for each in lists.groups() if each for spelling in _TEXT.findall(each)]


def _n_values(text: str) -> int:
    handler = _HANDLER.search(text)
    assert handler, text
    return 0 if "bool" in handler[1] else handler[1].count(",")


def _is_servers(text: str) -> bool:
    """Return whether an option is the server's, as `add_opt` decides. Without programs it belongs to all."""
    if ".set_preset_only()" in text:
        return False
    programs = _programs(_PROGRAMS, text) or {"COMMON"}
    return bool(programs & {"COMMON", "SERVER"}) and "SERVER" not in _programs(_NOT_OF, text)


def _programs(of: re.Pattern[str], text: str) -> set[str]:
    return {program for each in of.findall(text) for program in _PROGRAM.findall(each)}


def main() -> None:
    archive = Path(sys.argv[1])
    with tarfile.open(archive) as files:
        name = next(name for name in files.getnames() if name.endswith(_MEMBER))
        member = files.extractfile(name)
        assert member
        source = member.read().decode()
    lines = [f"{' '.join(spellings)}\t{n}\t{variable}" for spellings, n, variable in options(source)]
    LIST.write_text("\n".join([archive.name.removesuffix(".tar.gz"), *lines, ""]))


if __name__ == "__main__":
    main()
