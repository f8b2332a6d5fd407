"""The little grammar that sentences need once their slots are filled: articles and capitals."""

import re

_ARTICLE = re.compile(r"\b([Aa]) (?=([A-Za-z]+))")
_SENTENCE_START = re.compile(r'([.!?]\s+"?|[.!?]"\s+")([a-z])')


def article(phrase: str) -> str:
    """The phrase with "a" or "an"."""
    if phrase.startswith("pair"):
        return "a " + phrase
    return ("an " if phrase[0].lower() in "aeiou" and not phrase.startswith("uni") else "a ") + phrase


def fix(text: str) -> str:
    """Correct a/an and capitalise sentence starts."""
    text = _ARTICLE.sub(_right_article, text)
    text = _SENTENCE_START.sub(lambda found: found.group(1) + found.group(2).upper(), text)
    return text[0].upper() + text[1:]


def _right_article(found: re.Match[str]) -> str:
    word = found.group(2).lower()
    vowel = word[0] in "aeiou" and not word.startswith(("uni", "one", "use"))
    vowel = vowel or word.startswith(("honest", "hour"))
    return found.group(1) + ("n " if vowel else " ")
