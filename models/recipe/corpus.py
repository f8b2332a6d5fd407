"""Generate the chat corpus: seeded, synthetic, original text only.

    python corpus.py --out data --dialogues 120000

The other options make the mixes of the later training stages, see run.sh: more small skills, then more
names and questions that the models cannot answer, then stories about a requested trouble. It writes
data/train.jsonl and data/heldout.jsonl, one dialogue per line:
{"category": ..., "messages": [{"role": ..., "content": ...}, ...]}.
"""

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path

from dialogues import Dialogue, Options, Writer, as_messages
from knowledge import KEPT, TOPICS

_HELDOUT_SEED = 10**6  # added to the seed of the training dialogues


def main() -> None:
    arguments = _parse()
    options = Options(
        mix=tuple(arguments.mix),
        max_number=arguments.max_number,
        hard=arguments.hard,
        wide=arguments.wide,
        trouble=arguments.trouble,
        begin=arguments.begin,
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    writer = Writer(random.Random(arguments.seed), options)
    _write(arguments.out / "train.jsonl", (writer.dialogue() for _ in range(arguments.dialogues)))
    _write(arguments.out / "heldout.jsonl", heldout(random.Random(arguments.seed + _HELDOUT_SEED), options))


def heldout(rng: random.Random, options: Options) -> list[Dialogue]:
    """Prompts the models have not seen: fresh stories, held-out wordings, fresh skills."""
    writer = Writer(rng, options)
    result = [_dialogue("story", writer.story()[0]) for _ in range(20)]
    concurrency = next(topic for topic in TOPICS if "concurrency and" in topic.subject)
    result.append(_dialogue("knowledge", (KEPT, concurrency.answer)))
    result += [_dialogue("knowledge", (topic.held_out, topic.answer)) for topic in rng.sample(TOPICS, 17)]
    result += [_dialogue("skill", skill(rng)) for skill, _ in writer.skills for _ in range(2)]
    result += [_dialogue("smalltalk", writer.smalltalk()) for _ in range(5)]
    for _ in range(4):
        pair, plot = writer.story()
        result.append(_dialogue("multi-turn", pair, writer.follow_up(plot)))
    return result


def _dialogue(category: str, *turns: tuple[str, str]) -> Dialogue:
    return {"category": category, "messages": as_messages(*turns)}


def _write(path: Path, dialogues: Iterable[Dialogue]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in dialogues)


def _parse() -> argparse.Namespace:
    default = Options()
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--out", type=Path, default=Path("data"))
    add("--dialogues", type=int, default=120000)
    add("--seed", type=int, default=1)
    add("--mix", type=float, nargs=4, default=default.mix, help="shares: story, knowledge, skill, small talk")
    add("--max-number", type=int, default=default.max_number, help="largest number in sums")
    add("--hard", type=int, default=default.hard, help="how much more often hard skills come")
    add("--wide", action="store_true", help="more unusual names, and questions beyond the domain")
    add("--trouble", type=float, default=default.trouble, help="how often a request names the trouble")
    add("--begin", type=float, default=default.begin, help="how often only a beginning is wanted")
    return parser.parse_args()


if __name__ == "__main__":
    main()
