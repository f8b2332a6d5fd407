"""`python -m docs.generate`: write everything that follows from the code; `make docs` calls it."""

from pathlib import Path

from docs.generate.pages import ROOT, files


def main() -> None:
    """Say which files have changed."""
    for path, text in files().items():
        if _write(path, text):
            print(path.relative_to(ROOT))


def _write(path: Path, text: str) -> bool:
    if path.exists() and path.read_text("utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return True


if __name__ == "__main__":
    main()
