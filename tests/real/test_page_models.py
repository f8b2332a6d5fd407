"""The page of a scripted lead with several models, in chromium."""

import pytest

from tests.real.page_lead import Lead, ask, violations, visit

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.real
expect = sync_api.expect
PHONE = {"width": 390, "height": 844}


def record(name, state="unloaded", *, fits=True, **status):
    return {"id": name, "status": {"value": state} | status, "fits": fits, "meta": {"size": 3 << 30}}


@pytest.fixture
def lead():
    lead = Lead()
    vectors = record("vectors") | {"task": "embedding"}
    lead.models = [record("huge", fits=False), record("small"), vectors]
    return lead


@pytest.fixture
def page(context):
    return visit(context, state="loads when you ask")


def options(page):
    return page.get_by_label("Model").locator("option")


def test_the_first_question_goes_to_a_model_that_fits(page, lead):
    ask(page)
    assert lead.asked[0]["model"] == "small"


def test_a_router_is_told_which_model_even_if_the_others_make_vectors(page, lead):
    del lead.models[0]
    page.reload()
    expect(options(page)).to_have_count(1)
    ask(page)
    assert lead.asked[0]["model"] == "small"


def test_each_model_is_shown_with_its_state(page, lead):
    expect(options(page)).to_have_text(["huge · 3.0 GiB · does not fit", "small · 3.0 GiB"])
    lead.models[1]["status"]["value"] = "loading"
    expect(options(page)).to_have_text(["huge · 3.0 GiB · does not fit", "small · loading"])
    expect(page.locator("#state")).to_contain_text("loading small: ")
    lead.models[1]["status"]["value"] = "loaded"
    expect(options(page)).to_have_text(["huge · 3.0 GiB · does not fit", "small · loaded"])
    expect(page.locator("#state")).to_have_text("ready")


def test_the_only_model_of_a_router_is_looked_at_again_too(context, lead):
    lead.models = [record("small")]
    page = visit(context, state="loads when you ask")
    lead.models[0]["status"]["value"] = "loaded"
    expect(page.locator("#state")).to_have_text("ready")


def test_one_that_failed_says_why(page, lead):
    lead.models[1]["status"] |= {"failed": True, "message": "the file is cut off"}
    expect(page.locator("#state")).to_have_text("small: the file is cut off")


def test_a_choice_is_of_its_conversation_and_of_new_ones(page, lead):
    ask(page, "First")
    page.get_by_role("button", name="New chat").click()
    page.get_by_label("Model").select_option("huge")
    ask(page, "Second")
    page.get_by_role("button", name="New chat").click()
    ask(page, "Third")
    page.get_by_role("button", name="First", exact=True).click()
    expect(page.get_by_label("Model")).to_have_value("small")
    page.reload()
    ask(page, "Fourth")
    assert [body["model"] for body in lead.asked] == ["small", "huge", "huge", "small"]


def test_an_answer_has_the_name_of_its_model(page):
    ask(page)
    expect(page.locator(".answer h2")).to_have_text("a-model")
    page.reload()
    expect(page.locator(".answer h2")).to_have_text("a-model")


@pytest.mark.parametrize("context", [{"viewport": PHONE}], indirect=True)
def test_on_a_phone_the_model_is_within_reach_of_a_thumb(page):
    picker = page.get_by_label("Model")
    expect(picker).to_be_in_viewport()
    assert picker.bounding_box()["y"] > PHONE["height"] / 2
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_the_figures_fold_and_stay_folded(page):
    figures, fold = page.locator("#figures"), page.get_by_role("button", name="Machines")
    expect(fold).to_have_attribute("aria-expanded", "true")
    fold.press("Enter")
    expect(figures).to_be_hidden()
    page.reload()
    expect(figures).to_be_hidden()
    expect(fold).to_have_attribute("aria-expanded", "false")
