"""The lines for common programs are those that a shell and YAML read as they are meant."""

import ssl

import yaml

from lead.pairing.app_lines import app_lines, shown_fingerprint

PEM = ssl.DER_cert_to_PEM_cert(b"a certificate")
LINES = app_lines(("10.0.0.1:5556", "desk.local:5556"), "the-key", "qwen3:8b", PEM)


def test_other_addresses_are_named():
    assert "Other addresses of this lead: desk.local:5556" in LINES
    assert "Other addresses" not in app_lines(("10.0.0.1:5556",), "k", "m", PEM)


def test_a_fingerprint_is_shown_as_systems_show_it():
    shown = shown_fingerprint(PEM)
    assert shown == shown.upper()
    assert len(shown.split(":")) == 32
    assert f"\n    {shown}\n" in LINES


def test_continue_reads_its_lines():
    (model,) = yaml.safe_load(LINES.partition("under `models:`:\n")[2])
    assert (model["apiBase"], model["apiKey"], model["model"]) == (
        "https://10.0.0.1:5556/v1",
        "the-key",
        "qwen3:8b",
    )


def test_llm_reads_its_lines():
    (model,) = yaml.safe_load(LINES.partition("<<END\n")[2].partition("    END")[0])
    assert (model["model_name"], model["api_base"]) == ("qwen3:8b", "https://10.0.0.1:5556/v1")


def test_names_with_spaces_are_one_word():
    assert "llm -m 'My Model'" in app_lines(("10.0.0.1:5556",), "k", "My Model", PEM)
