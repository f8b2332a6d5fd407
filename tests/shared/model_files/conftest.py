from tests.shared.convert.conftest import (  # noqa: F401 - fixtures
    checkpoint,
    conversion_cache,
    gpt2_folder,
    tokenizer,
)
from tests.shared.model_files.hub_server import cache, server  # noqa: F401 - fixtures
