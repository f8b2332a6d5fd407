from tests.shared.llama.conftest import _nothing_remembered, loaded, model, three_slots  # noqa: F401 - fixtures
