"""The engine question for the planner's report."""

from typing import Any

from pydantic import BaseModel

from lead.engine.question import EngineQuestion


class Explained(BaseModel, frozen=True):
    """`report`: JSON for people and dashboards."""

    report: dict[str, Any]


class Explain(EngineQuestion[Explained], frozen=True):
    """Asks for the planner's report."""

    only_looks = True
