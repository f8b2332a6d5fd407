import pytest

from lead.engine import inline_sources
from lead.engine.inline_sources import planned_source
from lead.engine.load import Load
from shared.errors import ModelLoadError
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions


@pytest.mark.parametrize(("mtp", "is_refused"), [("off", False), ("auto", False), ("on", True)])
def test_without_a_ring_that_has_heads_they_are_refused_to_who_asks_for_them(mtp, is_refused, monkeypatch):
    monkeypatch.setattr(inline_sources, "RINGS", ())
    load = Load(model=builtin_target(), options=ModelOptions(threads=1), mtp=mtp)
    if is_refused:
        with pytest.raises(ModelLoadError, match="--mtp on: "):
            planned_source(load)
    else:
        assert planned_source(load) is None
