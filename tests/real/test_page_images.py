import base64
import struct

import pytest

from tests.image_files import png
from tests.real.page_lead import (
    MARKDOWN,
    WIDE,
    Lead,
    appearances,
    ask,
    check_changes_are_refused,
    export,
    listed,
    violations,
    visit,
)

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.real
expect = sync_api.expect

PICTURE = png(60, 40)
_FILES = """([data, type, name]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], name, { type }));
  return files;
}"""


@pytest.fixture
def lead():
    lead = Lead()
    lead.sees()
    return lead


def transfer(page, data, name="cat.png", type_="image/png"):
    return page.evaluate_handle(_FILES, [base64.b64encode(data).decode(), type_, name])


def drop(page, data=PICTURE, **file):
    page.dispatch_event("#question", "drop", {"dataTransfer": transfer(page, data, **file)})


def paste(page, data=PICTURE):
    page.evaluate(
        """(clipboardData) => document.querySelector("#question").dispatchEvent(
          new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }))""",
        transfer(page, data),
    )


def choose(page, data=PICTURE):
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add image").click()
    chooser.value.set_files({"name": "cat.png", "mimeType": "image/png", "buffer": data})


def attached(page):
    return page.locator("#attached img")


def shown(page):
    return page.locator(".question .picture img")


def sent_images(body):
    """The bytes of the images of the last message."""
    parts = body["messages"][-1]["content"]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert all(url.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")) for url in urls)
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


@pytest.mark.parametrize("give", [drop, paste, choose])
def test_an_image_is_sent_before_the_text_of_its_question(page, lead, give):
    give(page)
    expect(attached(page)).to_have_count(1)
    ask(page, "What is this?")
    (image,) = sent_images(lead.asked[0])
    assert struct.unpack_from(">16xII", image) == (60, 40)
    assert lead.asked[0]["messages"][-1]["content"][-1] == {"type": "text", "text": "What is this?"}
    expect(attached(page)).to_have_count(0)
    expect(shown(page)).to_have_attribute("alt", "cat.png")


def test_a_large_image_is_scaled_down_before_it_is_sent(page, lead):
    drop(page, png(2000, 500))
    expect(attached(page)).to_have_count(1)
    ask(page)
    (image,) = sent_images(lead.asked[0])
    assert len(image) <= 1 << 20
    assert shown(page).evaluate("(it) => [it.naturalWidth, it.naturalHeight]") == [1536, 384]


def test_an_image_needs_no_text(page, lead):
    drop(page)
    expect(attached(page)).to_have_count(1)
    ask(page, "")
    assert [part["type"] for part in lead.asked[0]["messages"][0]["content"]] == ["image_url"]
    expect(listed(page)).to_have_text(["cat.png"])


def test_an_attached_image_can_be_removed(page, lead):
    drop(page)
    page.get_by_role("button", name="Remove cat.png").click()
    ask(page, "Hello")
    assert lead.asked[0]["messages"][-1]["content"] == "Hello"


def test_images_stay_with_their_conversation_over_a_reload(page, lead):
    drop(page)
    expect(attached(page)).to_have_count(1)
    ask(page)
    page.reload()
    expect(shown(page)).to_have_count(1)
    ask(page, "And the background?")
    assert lead.asked[1]["messages"][0] == lead.asked[0]["messages"][0]


def test_an_edited_question_keeps_its_images(page, lead):
    drop(page)
    expect(attached(page)).to_have_count(1)
    ask(page)
    page.locator(".question").get_by_role("button", name="Edit").click()
    page.get_by_label("Edit your question").fill("Other")
    page.keyboard.press("Enter")
    expect(page.locator(".question")).to_contain_text("2 of 2")
    assert sent_images(lead.asked[1]) == sent_images(lead.asked[0])


def test_a_deleted_conversation_takes_its_images_along(page):
    drop(page)
    expect(attached(page)).to_have_count(1)
    ask(page)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#welcome")).to_be_visible()
    left = page.evaluate(
        """() => new Promise((done) => {
          indexedDB.open("llama-duo").onsuccess = ({ target }) => {
            target.result.transaction("images").objectStore("images").count().onsuccess = (event) =>
              done(event.target.result);
          };
        })"""
    )
    assert left == 0


def test_exported_images_can_be_imported_elsewhere(page, browser, lead):
    drop(page)
    expect(attached(page)).to_have_count(1)
    ask(page)
    exported = export(page)
    with browser.new_context() as elsewhere:
        elsewhere.route("**/*", lead.route)
        other = visit(elsewhere)
        other.locator("#import-file").set_input_files(exported)
        listed(other).click()
        expect(shown(other)).to_have_attribute("src", shown(page).get_attribute("src"))


def test_an_imported_image_is_one_that_the_page_made(page, tmp_path):
    def change(url):
        def change(told):
            told["conversations"][0]["messages"][0]["images"][0]["url"] = url

        return change

    drop(page)
    expect(attached(page)).to_have_count(1)
    ask(page)
    urls = ("https://example.org/x.png", "data:image/svg+xml;base64,AAAA", 3)
    check_changes_are_refused(page, tmp_path, map(change, urls))


def test_conversations_kept_before_there_were_images_stay(context):
    page = context.new_page()
    page.goto("http://lead.home/page/icon.svg")
    page.evaluate(
        """() => new Promise((done) => {
          const request = indexedDB.open("llama-duo", 1);
          request.onupgradeneeded = () => {
            const settings = { leaf: null, system: "", sampling: {} };
            const kept = { id: "c", title: "Old", created: 1, changed: 1, ...settings };
            request.result.createObjectStore("conversations", { keyPath: "id" }).put(kept);
            request.result.createObjectStore("messages", { keyPath: "id" })
              .createIndex("conversation", "conversation");
          };
          request.onsuccess = () => { request.result.close(); done(); };
        })"""
    )
    expect(listed(visit(context))).to_have_text(["Old"])


def test_a_model_that_does_not_see_says_so(page, lead):
    lead.models[0].pop("architecture")
    page.reload()
    expect(page.locator("#state")).to_have_text("ready")
    expect(page.get_by_role("button", name="Add image")).to_be_hidden()
    drop(page)
    expect(page.get_by_role("alert")).to_have_text("a-model cannot read images.")
    expect(attached(page)).to_have_count(0)


def test_what_the_browser_cannot_draw_is_refused_by_name(page):
    drop(page, b"no picture", name="broken.png")
    expect(page.get_by_role("alert")).to_have_text("This browser cannot read broken.png as an image.")


def test_a_question_has_a_maximum_number_of_images(page):
    for _ in range(9):
        drop(page)
    expect(page.get_by_role("alert")).to_have_text("A question can have at most 8 images.")
    expect(attached(page)).to_have_count(8)


def test_the_keyboard_attaches_removes_and_enlarges(page):
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add image").press("Enter")
    chooser.value.set_files({"name": "cat.png", "mimeType": "image/png", "buffer": PICTURE})
    expect(attached(page)).to_have_count(1)
    expect(page.get_by_label("Your question")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Remove cat.png")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("What is this?")
    page.keyboard.press("Enter")
    picture = page.get_by_role("button", name="cat.png")
    picture.press("Enter")
    expect(picture).to_have_attribute("aria-expanded", "true")


def test_axe_finds_nothing_and_nothing_sticks_out(page, lead):
    lead.thinking, lead.answer = "First this.", f"{MARKDOWN}\n```diff\n- it was so\n+ it is so\n```\n"
    drop(page, png(1600, 900))
    expect(attached(page)).to_have_count(1)
    for _ in appearances(page):
        assert violations(page) == []
    ask(page, "What is this?")
    page.locator(".thinking summary").click()
    shown(page).click()
    for width in appearances(page):
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
        box = shown(page).bounding_box()
        assert box["x"] + box["width"] <= width
        for name in ("Machines", "Chats", "Chats"):
            if width < WIDE["width"]:
                page.get_by_role("button", name=name).click()
                assert violations(page) == []
    page.get_by_role("button", name="Settings").click()
    for _ in appearances(page):
        assert violations(page) == []
