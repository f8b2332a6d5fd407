"""A back whose model has another vocabulary drafts for the lead all the same."""

import random

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from shared.models.builtin import builtin_draft
from tests.real.client import ask, ask_until_accepted
from tests.real.processes import back_of

pytestmark = pytest.mark.real

_BY_TOKEN = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory):
    """The shipped draft model with other token ids."""
    path = tmp_path_factory.mktemp("models") / "shuffled.gguf"
    source = GGUFReader(builtin_draft())
    order = list(range(len(source.fields["tokenizer.ggml.tokens"].data)))
    random.Random(1).shuffle(order)
    writer = GGUFWriter(path, "llama")
    for key, field in source.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = field.contents()
        if key in _BY_TOKEN:
            value = [value[token] for token in order]
        if key.endswith("_token_id"):
            value = order.index(value)
        is_array = field.types[0] == GGUFValueType.ARRAY
        writer.add_key_value(key, value, field.types[0], sub_type=field.types[-1] if is_array else None)
    for tensor in source.tensors:
        data = tensor.data[order] if tensor.name == "token_embd.weight" else tensor.data
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_its_drafts_are_accepted_and_change_no_text(served, shuffled):
    lead, url = served
    samplings = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}]
    texts = [ask(url, **sampling).text for sampling in samplings]
    with back_of(lead, url, "foreign", "--model", str(shuffled)) as back:
        back.wait_for("translating: .* has another tokenizer")
        assert [ask_until_accepted(url, **sampling).text for sampling in samplings] == texts
