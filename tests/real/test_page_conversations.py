import json

import pytest

from tests.real.page_lead import NARROW, Lead, articles, ask, check_changes_are_refused, export, listed, visit

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.real
expect = sync_api.expect

N_CONVERSATIONS, N_LONG = 500, 30_000


@pytest.fixture
def lead():
    return Lead()


def test_a_reload_keeps_the_conversation_and_who_drafted_it(page):
    ask(page)
    expect(listed(page)).to_have_text(["Hello there"])
    shown = articles(page)
    page.reload()
    expect(page.locator(".figures")).to_have_count(1)
    assert articles(page) == shown
    expect(page.locator(".said .token").first).to_have_attribute("title", "drafted by helper")


def test_a_conversation_is_listed_while_its_first_answer_runs(page, lead):
    lead.held = []
    page.get_by_label("Your question").fill("Slow")
    page.keyboard.press("Enter")
    expect(listed(page)).to_have_text(["Slow"])
    for route in lead.held:
        lead.fulfill(route)


def test_a_question_without_an_answer_is_asked_again_after_a_reload_but_not_in_another_tab(
    page, context, lead
):
    lead.held = []
    page.get_by_label("Your question").fill("Slow")
    page.keyboard.press("Enter")
    expect(listed(page)).to_have_text(["Slow"])
    visit(context, f"/{page.evaluate('location.hash')}")
    lead.held = None
    page.reload()
    expect(page.locator(".figures")).to_have_count(1)
    page.reload()
    expect(page.locator(".figures")).to_have_count(1)
    assert [one["messages"] for one in lead.asked] == [[{"role": "user", "content": "Slow"}]] * 2


def test_two_tabs_in_one_conversation_lose_nothing(page, context):
    ask(page)
    other = visit(context, f"/{page.evaluate('location.hash')}")
    expect(other.locator(".figures")).to_have_count(1)
    for tab, text in ((page, "From the first"), (other, "From the second")):
        tab.get_by_label("Your question").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".figures")).to_have_count(2)
    expect(other.locator(".question .text")).to_have_text(["Hello there", "From the first"])
    expect(other.locator(".figures")).to_have_count(2)
    other.keyboard.press("Enter")
    expect(page.locator(".question .text")).to_have_text(["Hello there", "From the first", "From the second"])
    page.reload()
    expect(page.locator(".figures")).to_have_count(3)


def test_what_another_tab_asks_during_an_answer_stands_beside_it(page, context, lead):
    ask(page)
    other = visit(context, f"/{page.evaluate('location.hash')}")
    expect(other.locator(".figures")).to_have_count(1)
    lead.held = []
    page.get_by_label("Your question").fill("Slow")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    held, lead.held = lead.held, None
    other.get_by_role("button", name="Regenerate").first.click()
    expect(other.locator(".answer").first).to_contain_text("2 of 2")
    for route in held:
        lead.fulfill(route)
    expect(page.locator(".answer").first).to_contain_text("of 2")
    expect(page.locator(".said")).to_have_count(2)


def test_a_second_tab_does_not_end_the_first_ones_conversation(page, context):
    ask(page, "One")
    other = visit(context)
    ask(other, "Two")
    ask(page, "One more")
    for tab in (page, other):
        tab.reload()
        expect(listed(tab)).to_have_text(["One", "Two"])


def test_conversations_are_searched_renamed_and_deleted(page, lead):
    lead.answer = "About zebras."
    ask(page, "First")
    page.get_by_role("button", name="New chat").click()
    lead.answer = "About lions."
    ask(page, "Second")
    page.get_by_label("Search conversations").fill("ZEBRA")
    expect(listed(page)).to_have_text(["First"])
    listed(page).first.click()
    expect(page.locator(".said")).to_have_text("About zebras.")
    page.get_by_role("button", name="Rename").click()
    page.keyboard.type("Stripes")
    page.keyboard.press("Enter")
    expect(listed(page)).to_have_text(["Stripes"])
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#welcome")).to_be_visible()
    page.get_by_label("Search conversations").fill("")
    expect(listed(page)).to_have_text(["Second"])


def test_what_is_exported_can_be_imported_elsewhere(page, browser, lead):
    ask(page, "Keep *this*")
    shown = articles(page)
    exported = export(page)
    with browser.new_context() as elsewhere:
        elsewhere.route("**/*", lead.route)
        other = visit(elsewhere)
        other.locator("#import-file").set_input_files(exported)
        listed(other).click()
        expect(other.locator(".figures")).to_have_count(1)
        assert articles(other) == shown


CHANGES = [
    lambda told: told["conversations"][0]["messages"].reverse(),
    lambda told: told["conversations"][0]["messages"][1].update(parent="nothing"),
    lambda told: told["conversations"][0]["messages"][1].update(runs=[["helper", -1]]),
    lambda told: told["conversations"][0]["conversation"].update(title=3),
    lambda told: told.update(version=2),
]


def test_a_file_that_is_not_as_the_page_exports_it_is_refused(page, tmp_path):
    ask(page)
    check_changes_are_refused(page, tmp_path, CHANGES)


def test_five_hundred_conversations_and_a_long_one_stay(page, tmp_path):
    (tmp_path / "many.json").write_text(json.dumps(many()))
    page.locator("#import-file").set_input_files(tmp_path / "many.json")
    expect(listed(page)).to_have_count(N_CONVERSATIONS)
    page.reload()
    expect(listed(page)).to_have_count(N_CONVERSATIONS)
    page.get_by_label("Search conversations").fill(f"word{N_LONG - 1}")
    expect(listed(page)).to_have_count(1)
    listed(page).click()
    expect(page.locator(".said")).to_have_count(N_LONG // 1000)
    assert page.locator(".said").last.text_content().endswith(f"word{N_LONG - 1}")
    assert len(" ".join(page.locator(".said").all_text_contents()).split()) == N_LONG


def many():
    """An exported file. One conversation has thirty answers of a thousand words, and the others are short."""
    words = [f"word{i}" for i in range(N_LONG)]
    texts = {0: [" ".join(words[i : i + 1000]) for i in range(0, N_LONG, 1000)]}
    conversations = []
    for n in range(N_CONVERSATIONS):
        conversation = f"c{n}"
        messages, parent = [], None
        for i, text in enumerate(texts.get(n, [f"answer {n}"])):
            ids = f"{n}q{i}", f"{n}a{i}"
            question = {"id": ids[0], "parent": parent, "role": "user", "content": "Go on", "created": 2 * i}
            answer = {"id": ids[1], "parent": ids[0], "role": "assistant", "content": text}
            runs = {"runs": [["helper", 4], [None, 3]] * (len(text) // 7), "thinkingRuns": [], "thinking": ""}
            about = {"figures": "42 tokens/s", "seed": 7, "isStopped": False, "created": 2 * i + 1}
            messages += [each | {"conversation": conversation} for each in (question, answer | runs | about)]
            parent = ids[1]
        record = {"id": conversation, "title": f"Number {n}", "created": n, "changed": n, "leaf": parent}
        about = {"system": "", "sampling": {}}
        conversations.append({"conversation": record | about, "messages": messages})
    return {"format": "llama-duo conversations", "version": 1, "conversations": conversations}


def test_colors_are_hidden_for_good(page):
    ask(page)
    token = page.locator(".said .token").first
    page.get_by_role("button", name="Hide colors").click()
    expect(token).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    page.reload()
    expect(token).to_have_css("background-color", "rgba(0, 0, 0, 0)")


def test_an_edited_question_and_another_answer_stand_beside_the_first(page, lead):
    ask(page, "One")
    page.locator(".question").get_by_role("button", name="Edit").click()
    page.get_by_label("Edit your question").fill("Other")
    lead.answer = "Else."
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_text("Else.")
    expect(page.locator(".question")).to_contain_text("2 of 2")
    lead.answer = "Again."
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".said")).to_have_text("Again.")
    expect(page.locator(".answer")).to_contain_text("2 of 2")
    page.reload()
    expect(page.locator(".said")).to_have_text("Again.")
    expect(page.locator(".answer")).to_contain_text("2 of 2")
    page.locator(".question").get_by_role("button", name="Previous version").click()
    expect(page.locator(".said")).to_have_text("Some answer.")
    expected = [["One"], ["Other"], ["Other"]]
    assert [[one["content"] for one in body["messages"]] for body in lead.asked] == expected


def test_an_edited_answer_stands_beside_the_first_and_is_what_the_model_continues(page, lead):
    ask(page, "One")
    page.locator(".answer").get_by_role("button", name="Edit").click()
    page.get_by_label("Edit the answer").fill("First line\n")
    page.keyboard.press("Enter")  # a line of the text, unlike in a question
    page.keyboard.type("second")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".answer")).to_contain_text("2 of 2")
    expect(page.locator(".answer .token")).to_have_count(0)
    page.reload()
    expect(page.locator(".said")).to_contain_text("second")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".answer")).to_contain_text("3 of 3")
    assert lead.asked[-1]["messages"][-1] == {"role": "assistant", "content": "First line\n\nsecond"}
    page.reload()
    expect(page.locator(".said .token").first).to_be_visible()
    assert not page.locator(".said .token").first.inner_text().startswith("First")
    page.get_by_label("Your question").fill("Two")
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_count(2)
    assert lead.asked[-1]["messages"][1]["content"].startswith("First line\n\nsecond")


def test_settings_are_of_one_conversation(page, lead):
    page.get_by_role("button", name="Settings").click()
    given = {"System prompt": "Be brief.", "Temperature": "0.5", "Min p": "0.1"}
    given |= {"Maximum tokens": "9", "Seed": "3"}
    for label, value in given.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Save").click()
    ask(page)
    page.reload()
    expect(page.locator(".figures")).to_have_count(1)
    ask(page, "More")
    page.get_by_role("button", name="New chat").click()
    ask(page, "Other")
    for body in lead.asked[:2]:
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (body["temperature"], body["min_p"], body["max_tokens"], body["seed"]) == (0.5, 0.1, 9, 3)
    assert not {"temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"} & lead.asked[2].keys()
    assert [one["role"] for one in lead.asked[2]["messages"]] == ["user"]


def test_settings_can_be_those_of_new_conversations_too(page, lead):
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Use these settings in new chats").check()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("button", name="New chat").click()
    ask(page)
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("System prompt")).to_have_value("Be brief.")
    expect(page.get_by_label("Use these settings in new chats")).not_to_be_checked()
    assert lead.asked[0]["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("content", "asked"),
    [("a ``` b", "notes.txt:\n````\na ``` b\n````\n"), ("a\0b", ""), ("x" * ((1 << 20) + 1), "")],
    ids=["text", "binary", "too large"],
)
def test_a_dropped_text_file_is_part_of_the_question(page, content, asked):
    files = page.evaluate_handle(
        """(content) => {
          const files = new DataTransfer();
          files.items.add(new File([content], "notes.txt"));
          return files;
        }""",
        content,
    )
    page.dispatch_event("#question", "drop", {"dataTransfer": files})
    if not asked:
        expect(page.get_by_role("alert")).to_contain_text("neither an image nor a text file")
    expect(page.get_by_label("Your question")).to_have_value(asked)


@pytest.mark.parametrize("context", [{"viewport": NARROW}], indirect=True)
def test_on_a_phone_chats_and_machines_are_one_tap_away(page):
    ask(page)
    expect(page.get_by_label("Model")).to_be_in_viewport()
    page.get_by_role("button", name="Machines").click()
    expect(page.get_by_role("switch")).to_be_in_viewport()
    page.get_by_role("button", name="Chats").click()
    listed(page).click()
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
