from lead.settings.model_names import ModelNames


def test_without_aliases_the_model_has_its_own_name():
    assert ModelNames.read(None, None, "llama 70B") == ModelNames(("llama 70B",))


def test_of_several_aliases_the_first_in_the_alphabet_is_its_name():
    names = ModelNames.read("tiny, fim,code,", "small", "llama 70B")
    assert (names.id, names.aliases, names.tags) == ("code", ("code", "fim", "tiny"), ("small",))
