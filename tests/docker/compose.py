"""Reads compose files as Docker Compose does, as far as the project's files need it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
LEAD, BACK = ROOT / "docker/compose.lead.yml", ROOT / "docker/compose.back.yml"
ONE_HOST = ROOT / "docker-compose.yml"
FLEET = ROOT / "deploy/fleet/compose.yml"

_VARIABLE = re.compile(r"\$\{(\w+)(?::-(.*?))?\}")


def load(path: Path, **variables: str) -> dict[str, Any]:
    """A compose file whose variables are replaced after parsing: an empty variable gives an empty text."""
    content: dict[str, Any] = _interpolate(yaml.safe_load(path.read_text()), variables)
    return content


def service(path: Path, name: str, **variables: str) -> dict[str, Any]:
    """A service of a compose file, merged with the service that it extends."""
    own: dict[str, Any] = load(path, **variables)["services"][name]
    if base := own.get("extends"):
        extended = service(path.parent / base["file"], base["service"], **variables)
        environment = extended.get("environment", {}) | own.get("environment", {})
        return extended | own | {"environment": environment}
    return own


def seconds(duration: str) -> float:
    """`"60s"` gives 60."""
    assert duration.endswith("s")
    return float(duration[:-1])


def _interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _VARIABLE.sub(lambda match: variables.get(match[1]) or match[2] or "", value)
        case list():
            return [_interpolate(each, variables) for each in value]
        case dict():
            return {key: _interpolate(each, variables) for key, each in value.items()}
    return value
