from tests.shared.convert.conftest import (  # noqa: F401 - fixtures
    checkpoint,
    conversion_cache,
    gpt2_folder,
    tokenizer,
)
