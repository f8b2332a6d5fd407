"""The engine question for the planner's report."""

from typing import Any

from pydantic import BaseModel

from lead.engine.question import EngineQuestion


class Explained(BaseModel, frozen=True):
    """The planner's `report`, as JSON for people and dashboards."""

    report: dict[str, Any]


class Explain(EngineQuestion[Explained], frozen=True):
    """Ask for the planner's report."""

    only_looks = True
