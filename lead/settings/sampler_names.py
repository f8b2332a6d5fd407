"""The samplers by llama-server's names and letters."""

from collections.abc import Iterable

from shared.sampling.parameters import DEFAULT_SAMPLERS, SamplerName

_LETTERS: dict[str, SamplerName] = dict(zip("edskypmxt", DEFAULT_SAMPLERS, strict=True))
_NAMES: dict[str, SamplerName] = {name: name for name in DEFAULT_SAMPLERS} | {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "nucleus": "top_p",
    "temp": "temperature",
}


def by_letters(letters: str) -> tuple[SamplerName, ...]:
    """`"kpt"`: top_k, top_p, temperature. Raises ValueError for unknown and repeated ones."""
    return _each_once(_known(letter, _LETTERS.get(letter)) for letter in letters)


def by_names(names: Iterable[str]) -> tuple[SamplerName, ...]:
    """By names, including former ones of llama.cpp. Raises ValueError as `by_letters` does."""
    return _each_once(_known(name, _NAMES.get(name.replace("-", "_"))) for name in names)


def by_names_or_letters(given: object) -> object:
    """From `"top_k;temperature"` or letters; other values than strings are returned unchanged.

    A string that is a name is not read as letters. Raises ValueError.
    """
    if not isinstance(given, str):
        return given
    names = [name.strip() for name in given.split(";") if name.strip()]
    is_letters = len(names) == 1 and names[0].replace("-", "_") not in _NAMES
    return by_letters(names[0]) if is_letters else by_names(names)


def _known(given: str, name: SamplerName | None) -> SamplerName:
    if name is None:
        raise ValueError(f"{given!r} is not one of {', '.join(DEFAULT_SAMPLERS)}")
    return name


def _each_once(given: Iterable[SamplerName]) -> tuple[SamplerName, ...]:
    names = tuple(given)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"{', '.join(twice)} may be used only once")
    return names
