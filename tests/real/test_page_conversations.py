"""What the page does with conversations in chromium; what a lead would answer is written down here."""

import json
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lead.http.page import FILES, HEADERS

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.real
expect = sync_api.expect

ORIGIN = "http://lead.home"  # no secure context, like most leads at home
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 340, "height": 640}
BACKS = [
    {"name": name, "model": "a-draft", "n_used_tokens": 9, "n_accepted_tokens": n}
    for n, name in enumerate(("helper", "a-mac-mini-with-a-long-name", "laptop"))
]
PLANNER = {
    "policy": "adaptive",
    "depth": 4,
    "n_steps": 9,
    "n_draft_tokens": 20,
    "n_accepted_tokens": 9,
    "n_committed": 18,
    "step_ms": {"1": 10.0, "2": 11.0},
    "depths": {"0": 4, "4": 5},
    "sources": {"helper": {"first_draft_ms": 9.0, "waited_ms": 1.0, "drafted_ms": 3.0, "token_ms": 1.0}},
}
SPECULATION = {"planner": PLANNER, "backs": BACKS, "lead": {"promise": "exact", "devices": "none"}}
N_CONVERSATIONS, N_LONG = 500, 30_000
MARKDOWN = """# Title

Some *em*, **strong**, `code` and [a link](https://example.org/a_b), but not 2 * 3 * 4 nor snake_case_names.

1. one
   - inner **bold**
2. two

   ```python
   x = "`*_<b>"
   ```

> quoted

| a | b |
|---|--:|
| 1 \\| 2 | `3` |

[bad](javascript:alert(1)) <b>stays</b> ![picture](https://example.org/x.png)
"""


class Lead:
    """Answers the page: each question with `answer`, whose words came in turn from the model and a back."""

    def __init__(self):
        self.answer = "Some **answer**."
        self.asked = []
        self.held = None  # or a list of questions that wait

    def route(self, route):
        path = urlsplit(route.request.url).path
        if file := FILES.get(path):
            route.fulfill(body=file.content, headers=HEADERS | {"Content-Type": file.media_type})
        elif path == "/v1/models":
            route.fulfill(json={"data": [{"id": "a-model"}]})
        elif path == "/v1/speculation":
            route.fulfill(json=SPECULATION)
        elif path == "/v1/chat/completions":
            self.asked.append(json.loads(route.request.post_data))
            if self.held is not None:
                self.held.append(route)
                return
            self.fulfill(route)
        else:
            route.fulfill(status=403, json={"error": {"message": "not for this key"}})

    def fulfill(self, route):
        route.fulfill(content_type="text/event-stream", body="".join(self._events()))

    def _events(self):
        for i, word in enumerate(self.answer.split(" ")):
            text = f" {word}" if i else word
            tokens = [{"text": text, "source": ("helper", None)[i % 2]}]
            yield event({"delta": {"content": text}}, speculation={"tokens": tokens})
        timings = {"predicted_per_second": 42.0, "predicted_n": 8, "draft_n": 8, "draft_n_accepted": 4}
        yield event({"delta": {}, "finish_reason": "stop"}, timings=timings, seed=7)
        yield "data: [DONE]\n\n"


def event(choice, **fields):
    return f"data: {json.dumps({'choices': [choice], **fields})}\n\n"


@pytest.fixture
def lead():
    return Lead()


@pytest.fixture(params=[{}])
def context(browser, lead, request):
    """One browser's memory; fails if anything went wrong in a page, or if one asked another server."""
    wrong = []
    with browser.new_context(**{"viewport": WIDE, "accept_downloads": True} | request.param) as context:
        context.route("**/*", lead.route)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        context.on("request", lambda r: None if r.url.startswith((ORIGIN, "blob:")) else wrong.append(r.url))
        yield context
    assert wrong == []


def visit(context, path="/"):
    page = context.new_page()
    page.goto(ORIGIN + path)
    expect(page.locator("#state")).to_have_text("ready")
    return page


@pytest.fixture
def page(context):
    return visit(context)


def ask(page, text="Hello there"):
    n = page.locator(".figures").count()
    page.get_by_label("Your question").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".figures")).to_have_count(n + 1)


def articles(page):
    return page.locator("#transcript article").evaluate_all(
        "articles => articles.map((one) => one.outerHTML)"
    )


def listed(page):
    return page.locator("#conversation-list .open")


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


def test_what_is_exported_can_be_imported_elsewhere(page, browser, lead, tmp_path):
    ask(page, "Keep *this*")
    shown = articles(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    download.value.save_as(tmp_path / "all.json")
    with browser.new_context() as elsewhere:
        elsewhere.route("**/*", lead.route)
        other = visit(elsewhere)
        other.locator("#import-file").set_input_files(tmp_path / "all.json")
        listed(other).click()
        expect(other.locator(".figures")).to_have_count(1)
        assert articles(other) == shown


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["conversations"][0]["messages"].reverse(),
        lambda told: told["conversations"][0]["messages"][1].update(parent="nothing"),
        lambda told: told["conversations"][0]["messages"][1].update(runs=[["helper", -1]]),
        lambda told: told["conversations"][0]["conversation"].update(title=3),
        lambda told: told.update(version=2),
    ],
)
def test_a_file_that_is_not_as_the_page_exports_it_is_refused(page, tmp_path, change):
    ask(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    told = json.loads(Path(download.value.path()).read_text())
    change(told)
    (tmp_path / "changed.json").write_text(json.dumps(told))
    page.locator("#import-file").set_input_files(tmp_path / "changed.json")
    expect(page.locator("#list-note")).to_contain_text("this page export")


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
    """An exported file: one conversation of thirty answers with a thousand words each, the others short."""
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


def test_markdown_becomes_elements_and_no_html(page, lead):
    lead.answer = MARKDOWN
    ask(page)
    said = page.locator(".said")
    expect(said.locator("h3")).to_have_text("Title")
    expect(said.locator("p em")).to_have_text(["em"])
    expect(said.locator("p > strong")).to_have_text(["strong", "bold"])
    expect(said.locator("p code")).to_have_text("code")
    expect(said.locator("> ol > li > ul > li")).to_have_text("inner bold")
    expect(said.locator("ol > li:nth-child(2) pre")).to_have_text('x = "`*_<b>"')
    expect(said.locator("blockquote p")).to_have_text("quoted")
    expect(said.locator("th")).to_have_text(["a", "b"])
    expect(said.locator("td")).to_have_text(["1 | 2", "3"])
    addresses = said.locator("a[href]").evaluate_all("links => links.map((link) => [link.href, link.rel])")
    assert addresses == [
        ["https://example.org/a_b", "noopener noreferrer"],
        ["https://example.org/x.png", "noopener noreferrer"],
    ]
    expect(said).to_contain_text("[bad](javascript:alert(1)) <b>stays</b>")
    assert said.locator("b, img").count() == 0


@pytest.mark.parametrize(
    "hostile",
    ["".join("`" * i + " " for i in range(300)), "*" * 50_000, "*a " * 20_000, "[" * 50_000, "> " * 20_000],
    ids=["backticks", "stars", "emphasis", "brackets", "quotes"],
)
def test_no_text_stops_the_page(page, lead, hostile):
    lead.answer = f"{hostile}\n\nThe end."
    ask(page)
    expect(page.locator(".said > p").last).to_have_text("The end.")


def test_a_text_that_comes_in_pieces_looks_like_one_that_came_at_once(page):
    differs = page.evaluate(
        """async (text) => {
          const { GrowingText } = await import("/page/answer.js");
          const grown = () => new GrowingText(document.createElement("div"), { add() {} }, true);
          const [whole, slow] = [grown(), grown()];
          whole.add([{ text, source: null }]);
          whole.paint();
          for (const one of text) {
            slow.add([{ text: one, source: null }]);
            slow.paint();
          }
          return whole.element.outerHTML === slow.element.outerHTML ? null : slow.element.outerHTML;
        }""",
        MARKDOWN,
    )
    assert differs is None


def test_code_is_copied_as_it_is(page, lead):
    lead.answer = MARKDOWN
    ask(page)
    page.get_by_role("button", name="Copy code").click()
    expect(page.get_by_role("button", name="Copy code")).to_have_text("Copied")
    page.get_by_label("Your question").focus()
    page.keyboard.press("Control+V")
    expect(page.get_by_label("Your question")).to_have_value('x = "`*_<b>"')


def test_colors_are_hidden_for_good(page):
    ask(page)
    token = page.locator(".said .token").first
    page.get_by_role("button", name="Hide colors").click()
    expect(token).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    page.reload()
    expect(token).to_have_css("background-color", "rgba(0, 0, 0, 0)")


def test_an_edited_question_and_another_answer_stand_beside_the_first(page, lead):
    ask(page, "One")
    page.get_by_role("button", name="Edit").click()
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


def test_settings_are_of_one_conversation(page, lead):
    page.get_by_role("button", name="Settings").click()
    given = {"System prompt": "Be brief.", "Temperature": "0.5", "Most tokens": "9", "Seed": "3"}
    for label, value in given.items():
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Use these").click()
    ask(page)
    page.reload()
    expect(page.locator(".figures")).to_have_count(1)
    ask(page, "More")
    page.get_by_role("button", name="New chat").click()
    ask(page, "Other")
    for body in lead.asked[:2]:
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.5, 9, 3)
    assert not {"temperature", "max_tokens", "seed", "top_p"} & lead.asked[2].keys()
    assert [one["role"] for one in lead.asked[2]["messages"]] == ["user"]


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
        expect(page.get_by_role("alert")).to_contain_text("no text file")
    expect(page.get_by_label("Your question")).to_have_value(asked)


@pytest.mark.parametrize("context", [{"viewport": NARROW}], indirect=True)
def test_on_a_phone_chats_and_machines_are_one_tap_away(page):
    ask(page)
    box = page.locator("h1").bounding_box()
    assert box["height"] < 30  # one line
    page.get_by_role("button", name="Machines").click()
    expect(page.get_by_role("switch")).to_be_in_viewport()
    page.get_by_role("button", name="Chats").click()
    listed(page).click()
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()


@pytest.mark.parametrize(
    "context",
    [{"viewport": size, "color_scheme": scheme} for size in (WIDE, NARROW) for scheme in ("light", "dark")],
    indirect=True,
)
def test_axe_finds_nothing(page, lead):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    source = (files(axe) / "axe.min.js").read_text()
    lead.answer = MARKDOWN

    def found():
        page.evaluate(source)
        return page.evaluate(
            "axe.run().then(({ violations }) => violations.map((it) => [it.id, it.nodes[0].html]))"
        )

    assert found() == []
    ask(page)
    assert found() == []
    for name in ("Machines", "Chats"):
        if page.get_by_role("button", name=name).is_visible():
            page.get_by_role("button", name=name).click()
            assert found() == []
    if page.get_by_role("button", name="Chats").is_visible():
        page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="Settings").click()
    assert found() == []
