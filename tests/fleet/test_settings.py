"""The settings of `serve run fleet.app:app`."""

from fleet.settings import FleetSettings
from lead.settings.limits import RequestLimits


def test_options_are_divided_as_a_shell_does():
    settings = FleetSettings(lead="--model 'my model.gguf' --threads 1")
    assert settings.arguments("lead") == ["--model", "my model.gguf", "--threads", "1"]
    assert settings.arguments("back") == []


def test_bodies_are_as_large_as_a_lead_takes_them():
    assert FleetSettings().max_body_bytes == RequestLimits().max_body_bytes


def test_the_first_key_of_the_file_is_the_fleets_own(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# clients\n\nfirst\nsecond\n")
    assert FleetSettings(key_file=path).key() == "first"
    assert FleetSettings().key() is None
