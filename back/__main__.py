"""Entry point of the program `back`."""

from shared import way_in


def main() -> None:
    way_in.run("back.cli")


if __name__ == "__main__":
    main()
