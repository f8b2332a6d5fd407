"""What running a grammar costs llama.cpp, bounded before it does.

llama.cpp keeps a stack for every way in which the text so far can be read; between two characters it follows
all references that may come next. A rule that refers to itself before any character would never end.
"""

from lead.grammar.gbnf import MOST_REPEATS, Grammar, GrammarError, Item

MOST_ELEMENTS = 1 << 17
"""After repetitions are written out; each takes 8 bytes, in every answer that uses the grammar."""
MOST_WAYS = 1 << 13
"""To follow references from one place to the next character; each may become a stack."""


def check_shape(grammar: Grammar) -> None:
    """Raise GrammarError for left recursion and for what takes too much memory or time."""
    _check_size(grammar)
    empty = _may_be_empty(grammar)
    for alternatives in grammar.rules.values():
        for item in (item for items in alternatives for item in items):
            if item.rule in empty and item.most is None:
                raise GrammarError(f"{_name(item.rule)} may be empty and is repeated without end")
    _check_ways(grammar, empty)


def _check_size(grammar: Grammar) -> None:
    total = 0
    for alternatives in grammar.rules.values():
        for item in (item for items in alternatives for item in items):
            n_optional = 1 if item.most is None else item.most - item.least
            total += item.n * max(item.least, 1) + n_optional * (item.n + 3)
    if total > MOST_ELEMENTS:
        raise GrammarError(f"the grammar has {total} elements; at most {MOST_ELEMENTS} are taken")


def _may_be_empty(grammar: Grammar) -> set[str]:
    """The rules of which nothing may come: repeated until no more are found, each time only their users."""
    users: dict[str, list[str]] = {}
    for name, alternatives in grammar.rules.items():
        for rule in {item.rule for items in alternatives for item in items if item.rule is not None}:
            users.setdefault(rule, []).append(name)
    empty: set[str] = set()
    todo = list(grammar.rules)
    while todo:
        name = todo.pop()
        if name not in empty and any(
            all(_is_empty(item, empty) for item in items) for items in grammar.rules[name]
        ):
            empty.add(name)
            todo += users.get(name, [])
    return empty


def _is_empty(item: Item, empty: set[str]) -> bool:
    return item.least == 0 or item.n == 0 or item.rule in empty


def _check_ways(grammar: Grammar, empty: set[str]) -> None:
    """Depth first without recursion: a rule is counted after all that it may begin with."""
    ways: dict[str, int] = {}
    begun: set[str] = set()
    for start in grammar.rules:
        todo = [start]
        while todo:
            name = todo[-1]
            if name in ways:
                todo.pop()
                continue
            firsts = list(_firsts(grammar, name, empty))
            new = [item.rule for item in firsts if item.rule is not None and item.rule not in ways]
            if not new:
                ways[name] = _ways_of(name, firsts, ways, empty)
                todo.pop()
                continue
            if name in begun:
                raise GrammarError(f"left recursion: {_name(name)} may begin with itself")
            begun.add(name)
            todo += new


def _firsts(grammar: Grammar, name: str, empty: set[str]) -> list[Item]:
    """The items with which a rule may begin."""
    firsts = []
    for items in grammar.rules[name]:
        for item in items:
            firsts.append(item)
            if not _is_empty(item, empty):
                break
    return firsts


def _ways_of(name: str, firsts: list[Item], ways: dict[str, int], empty: set[str]) -> int:
    n = 1
    for item in firsts:
        n_times = 1
        if item.rule in empty:  # what may be empty is followed once for each repetition
            n_times = min(item.most or MOST_REPEATS, MOST_REPEATS)
        n += n_times * (1 if item.rule is None else ways[item.rule])
    if n > MOST_WAYS:
        raise GrammarError(f"{_name(name)} can begin in more than {MOST_WAYS} ways: write it with fewer")
    return n


def _name(rule: str | None) -> str:
    return "a group in parentheses" if rule is None or rule.startswith("(") else f'the rule "{rule}"'
