from lead.settings.model_names import ModelNames


def test_without_aliases_the_name_in_the_metadata_is_used():
    assert ModelNames.read(None, None, "llama 70B") == ModelNames(("llama 70B",))


def test_the_first_alias_in_alphabetical_order_is_the_name():
    names = ModelNames.read("tiny, fim,code,", "small", "llama 70B")
    assert (names.id, names.aliases, names.tags) == ("code", ("code", "fim", "tiny"), ("small",))
