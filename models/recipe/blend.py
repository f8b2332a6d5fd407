"""Average the weights of two checkpoints of one run: python blend.py A B SHARE_OF_B OUT."""

import sys

import torch

_USAGE = "python blend.py A B SHARE_OF_B OUT"


def main() -> None:
    try:
        first, second, share, out = sys.argv[1:]
    except ValueError:
        sys.exit(_USAGE)
    blend(first, second, float(share), out)


def blend(first: str, second: str, share: float, out: str) -> None:
    """Everything but the weights is the second one's; its optimizer state is left out."""
    a, b = (torch.load(path, weights_only=True) for path in (first, second))
    b["model"] = {key: (1 - share) * a["model"][key] + share * value for key, value in b["model"].items()}
    del b["optimizer"]
    torch.save(b, out)


if __name__ == "__main__":
    main()
