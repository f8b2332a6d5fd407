from tests.shared.llama.conftest import loaded, model, three_slots  # noqa: F401 - fixtures
