"""`python -m docs.check_prose [FILE…]`: find sentences that break docs/design/writing.md.

`make check` runs it. It checks Markdown pages, and the docstrings of CODE. It skips code, generated blocks
and HTML.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "*.md",
    "docs/**/*.md",
    "docker/*.md",
    "deploy/**/*.md",
    "models/smollm2/**/*.md",
)
CODE = ("docs/**/*.py",)
MAX_WORDS = 25
FORBIDDEN = {
    r"^(What|Who|Whoever|Whatever|Whichever)\b(?!.*\?)": "begin with the noun",
    r"\b(of|to|from|with|by|for|and|or|as|than|in) what (is|are|was|were|has|have|can)\b": "name the noun",
    r"\b(whoever|whatever they|what there is|nobody is)\b": "name the noun",
    r"\b(that|those) of\b|\bones? (that|who|which)\b"
    r"|\bthose (that|who|which|in|on|with|from)\b": "repeat the noun",
    r"(?<![Tt]here )\b(is|are|was|were) no (?!longer|more than|less)\w": "write `not a`",
    r"\b(in no more|not any more)\b": "write `no longer`",
    r"\bbut for\b|\banew\b|\bby heart\b|\bdear\b"
    r"|\bbe it\b|\b(otherwise|not so) than\b": "write plain English",
    r"\bright in \.?\d": "give the acceptance rate",
    r";.*;|: .*: ": "write two sentences",
}
TERMS = {
    r"kv[- ]cache": "KV cache",
    r"llama\.cpp": "llama.cpp",
    r"llama[- ]server": "llama-server",
    r"web[- ]?socket": "WebSocket",
    r"web interface": "web UI",
    r"n-?gram": "n-gram",
    r"time to the first token": "time to first token",
    **{
        name: name
        for name in ("GitHub", "OpenAI", "Python", "Linux", "Anthropic", "Ollama", "JSON", "HTTP", "HTTPS")
    },
}
"""The spelling of each term, by a pattern that matches the term in any case."""

_SKIPPED = re.compile(
    r"^```.*?^```|<!-- begin .*?<!-- end [\w-]+ -->|</?[a-z][^<>]*>|^    [^\n]*$", re.MULTILINE | re.DOTALL
)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*#>|]|\d+\. ))|(?<!\\)\|")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)*_\"”]*\s+(?=[*_`(\"“]*[A-Z`(]|llama[.-]|[a-z_]+(?:, [a-z_]+)*: )")


def faults(sentence: str) -> Iterator[str]:
    """Yield advice for each fault of a sentence in which code and links are already replaced."""
    if (n_words := len(re.findall(r"\S*\w\S*", sentence))) > MAX_WORDS:
        yield f"{n_words} words"
    yield from (advice for pattern, advice in FORBIDDEN.items() if re.search(pattern, sentence))
    for pattern, spelled in TERMS.items():
        for term in re.finditer(rf"(?<![./\w]){pattern}(?![./\w]\w)", sentence, re.IGNORECASE):
            if term[0].lower() != spelled.lower() or term[0][1:] != spelled[1:]:
                yield f"write {spelled!r}, not {term[0]!r}"


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every sentence in paragraphs, lists and tables, but not of headings."""
    text = _SKIPPED.sub(lambda skipped: "\n" * skipped[0].count("\n"), text)
    text = re.sub(r"``?[^`]+``?|https?://\S+", lambda code: "Code" + "\n" * code[0].count("\n"), text)
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\))?", r"\1", text)
    start = 0
    for end in [*(match.span() for match in _BLOCK.finditer(text)), (len(text), len(text))]:
        block, line = text[start : end[0]], text.count("\n", 0, start) + 1
        start = end[1]
        if not block.lstrip().startswith("#"):
            plain = re.sub(r"^\s*(?:[*>-]|\d+\.) ", "", " ".join(block.split())).replace("**", "")
            yield from ((line, sentence) for sentence in _SENTENCE_END.split(plain) if sentence)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every sentence of a page, or of the docstrings of a module."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from sentences(text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            line = getattr(node, "lineno", 1)
            yield from ((line, sentence) for _, sentence in sentences(ast.get_docstring(node) or ""))


def main() -> None:
    """Print each fault; exit with 1 if there are any."""
    listed = [path for pattern in (*PAGES, *CODE) for path in sorted(ROOT.glob(pattern))]
    paths = [Path(name).resolve() for name in sys.argv[1:]] or listed
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}: {sentence}"
        for path in paths
        for line, sentence in prose(path)
        for fault in faults(sentence)
    ]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
