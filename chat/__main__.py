"""Entry point of the program `chat`."""

from shared import way_in


def main() -> None:
    way_in.run("chat.program", is_interrupted=True)


if __name__ == "__main__":
    main()
