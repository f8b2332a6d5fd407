import json
import re
from contextlib import contextmanager

import httpx
import pytest

from lab.parts.processes import free_port, start_back, start_lead
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target
from shared.pairing.joined_lead import JoinedLead
from shared.protocol import PROTOCOL_VERSION
from tests.real.processes import BACK, LEAD, back_of, kill

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.real
expect = sync_api.expect
_PATIENCE_MS = 120_000
expect.set_options(timeout=_PATIENCE_MS)  # a machine that runs other tests, too, is slow

ADMIN, CLIENT, BACKS = "the-admins-key", "a-clients-key", "the-backs-key"
QUESTION = "Tell me a story about a fox named Zorvi who gets lost, with a red umbrella."
MARKUP = "<img src=x onerror=\"document.title='taken over'\"><script>document.title='taken over'</script>"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 340, "height": 640}


@pytest.fixture(scope="module")
def lead(target):
    """(program, url) of a lead."""
    keys = ("--admin-key", ADMIN, "--api-key", CLIENT, "--back-key", BACKS)
    lead, url = start_lead("--model", str(target), *LEAD, *keys)
    with lead, start_back(url, "--name", "helper", "--key", BACKS, *BACK):
        yield lead, url


@pytest.fixture(scope="module")
def url(lead):
    return lead[1]


@pytest.fixture
def visit(browser, url):
    """Opens the page, with a key in its tab or without. Fails on any error in the page."""

    @contextmanager
    def visit(key=ADMIN, url=url, **options):
        with browser.new_context(**{"viewport": WIDE} | options) as context:
            context.set_default_timeout(_PATIENCE_MS)
            page = context.new_page()
            wrong = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("request", lambda r: wrong.append(r.url) if key and key in r.url else None)
            page.on("request", lambda r: None if r.url.startswith(url) else wrong.append(r.url))
            page.goto(url)
            if key:
                page.get_by_label("Key", exact=True).fill(key)
                page.keyboard.press("Enter")
            if key is not None:
                expect(page.locator("#state")).to_have_text("ready")
            yield page
            assert wrong == []

    return visit


@pytest.fixture
def speculating(url):
    """Switch speculation on again after the test."""
    yield
    choose(url, "adaptive")


def choose(url, policy):
    httpx.put(f"{url}/v1/speculation", json={"policy": policy}, headers=bearer(ADMIN)).raise_for_status()


def policy_of(url):
    return httpx.get(f"{url}/v1/speculation", headers=bearer(ADMIN)).json()["planner"]["policy"]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def asking_for(page, **fields):
    """Add these fields to the page's requests; yield the bodies that the page sent."""
    sent = []

    def change(route):
        body = json.loads(route.request.post_data)
        sent.append(body)
        route.continue_(post_data=json.dumps(body | fields))

    page.route("**/v1/chat/completions", change)
    yield sent
    page.unroute("**/v1/chat/completions")


def ask(page, text=QUESTION):
    page.get_by_label("Your question").fill(text)
    page.keyboard.press("Enter")


def answers(page):
    return page.locator(".answer")


def figures(page, n):
    """The figures under the n-th answer (from 0) when it is complete."""
    return answers(page).nth(n).locator(".figures")


@pytest.mark.usefixtures("speculating")
def test_a_running_answer_shows_who_drafted_what_and_can_be_stopped(visit, url):
    choose(url, "sync")  # beside load the adaptive one may find that drafts gain nothing
    with visit() as page, asking_for(page, ignore_eos=True, max_tokens=2000):
        ask(page)
        expect(page.locator(".answer[aria-busy=true] .token").first).to_have_attribute(
            "title", "drafted by helper"
        )
        expect(page.locator("#legend")).to_contain_text("helper")
        expect(page.locator(".figures-so-far")).to_have_text(re.compile(r"[\d.]+ tokens/s · \d+ tokens"))
        page.keyboard.press("Escape")
        expect(figures(page, 0)).to_have_text(re.compile(r"stopped · [\d.]+ tokens/s · \d+ tokens"))


def test_a_stopped_answer_is_kept_over_a_reload_and_goes_on_where_it_was(visit):
    with visit() as page:
        with asking_for(page, ignore_eos=True, max_tokens=2000):
            ask(page)
            expect(page.locator(".said")).to_contain_text(re.compile(r"\w+ \w+"))
            page.keyboard.press("Escape")
            expect(figures(page, 0)).to_contain_text("stopped")
            begun = page.locator(".said").text_content()
        page.reload()
        expect(page.locator(".said")).to_have_text(begun)
        with asking_for(page, max_tokens=8) as sent:
            page.get_by_role("button", name="Continue").click()
            expect(figures(page, 0)).to_contain_text("tokens")
            assert sent[0]["messages"][-1]["role"] == "assistant"
            assert len(page.locator(".said").text_content()) > len(begun)
        expect(page.locator(".answer")).to_contain_text("2 of 2")


def test_an_answer_goes_on_after_a_reload(visit):
    with visit() as page, asking_for(page, ignore_eos=True, max_tokens=2000) as sent:
        ask(page)
        expect(page.locator(".said")).to_contain_text(re.compile(r"\w+ \w+"))
        begun = re.escape(page.locator(".said").text_content())
        page.reload()
        expect(page.locator(".answer[aria-busy=true] .said")).to_have_text(re.compile(rf"{begun}\s*\S"))
        page.keyboard.press("Escape")
        expect(figures(page, 0)).to_contain_text("stopped")
        expect(page.locator(".answer")).not_to_contain_text("of 2")
        assert [one["role"] for one in sent[1]["messages"]] == ["user", "assistant"]


@pytest.mark.usefixtures("speculating")
def test_the_back_is_shown_with_its_model_and_what_came_of_its_drafts(visit, url):
    choose(url, "sync")
    with visit() as page, asking_for(page, max_tokens=40):
        ask(page)
        expect(figures(page, 0)).to_contain_text("40 tokens")
        back = page.get_by_role("listitem").filter(has_text="helper").filter(has_text="accepted")
        expect(back).to_contain_text("spec-demo-draft")
        expect(back).to_contain_text(re.compile(r"\d %"))
        expect(back).to_contain_text("answers in")
        expect(page.get_by_role("img", name=re.compile(r"helper gives \d"))).to_be_visible()
        expect(page.get_by_role("list", name="T(n)")).to_contain_text("1 token: ")
        expect(page.get_by_role("list", name="Depth")).to_contain_text("of steps")


@pytest.mark.usefixtures("speculating")
def test_an_admin_turns_speculation_off_for_all_and_gets_the_same_text(visit, url):
    choose(url, "sync")
    with visit() as page, asking_for(page, max_tokens=40):
        ask(page)
        expect(figures(page, 0)).to_contain_text("accepted")
        page.get_by_role("switch").click()
        expect(page.get_by_text("Off for everyone")).to_be_visible()
        assert policy_of(url) == "off"
        first = page.locator(".said").text_content()
        page.get_by_role("button", name="Repeat").click()
        expect(figures(page, 0)).to_contain_text("without drafts")
        assert page.locator(".said").text_content() == first
        page.get_by_role("switch").click()
        expect(page.get_by_text("On for everyone")).to_be_visible()
        assert policy_of(url) == "sync"


def test_a_client_turns_it_off_for_own_questions(visit, url):
    with visit(CLIENT) as page, asking_for(page, max_tokens=40) as sent:
        expect(page.locator("#invitations")).to_be_hidden()
        page.get_by_role("switch").click()
        expect(page.get_by_text("Off for your questions")).to_be_visible()
        ask(page)
        expect(figures(page, 0)).to_contain_text("without drafts")
        assert sent[0]["speculative.n_max"] == 0
        assert policy_of(url) == "adaptive"


def test_backs_come_and_go(visit, lead):
    program, url = lead
    with visit() as page:
        with back_of(program, url, "guest", "--key", BACKS):
            expect(page.locator("#backs")).to_contain_text("guest")
        expect(page.locator("#backs")).not_to_contain_text("guest")
        expect(page.locator("#backs")).to_contain_text("helper")


def test_a_lead_that_was_away_is_asked_again(visit, target):
    arguments = ("--port", str(free_port()), "--model", str(target), *LEAD)
    first, url = start_lead(*arguments)
    with first, visit(key="", url=url) as page:
        with asking_for(page, max_tokens=8):
            ask(page, "Who are you?")
            expect(figures(page, 0)).to_be_visible()
            kill(first)
            expect(page.locator("#state")).to_have_text("the lead does not answer, trying again")
            ask(page, "Are you there?")
            expect(answers(page).nth(1)).to_contain_text("the lead does not answer")
        second, _ = start_lead(*arguments, "--alias", "another")
        with second, asking_for(page, max_tokens=8) as sent:
            expect(page.locator("#state")).to_have_text("ready")
            expect(page.locator("#model")).to_have_text("another")
            page.get_by_role("button", name="Regenerate").last.click()
            expect(figures(page, 1)).to_be_visible()
            contents = [message["content"] for message in sent[0]["messages"]]
            assert [contents[0], *contents[2:]] == ["Who are you?", "Are you there?"]


def test_a_key_is_asked_for_and_stays_in_its_tab(visit):
    with visit(key=None) as page:
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("requires a key")
        expect(dialog).to_contain_text("lead invite --chat")
        page.keyboard.type("not-a-key")  # the field has the focus
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("Invalid API Key")
        page.keyboard.type(CLIENT)
        page.keyboard.press("Enter")
        expect(dialog).not_to_be_visible()
        expect(page.locator("#state")).to_have_text("ready")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
        page.get_by_role("button", name="Forget key").click()
        expect(dialog).to_be_visible()


def test_markup_from_a_model_or_a_back_stays_text(visit, url):
    identity = Vocabulary.load(builtin_target()).identify()
    vocabulary = identity.model_dump() | {"model": MARKUP}
    hello = {"type": "hello", "protocol": PROTOCOL_VERSION, "name": "x", "vocabulary": vocabulary}
    post = {"messages": [hello | {"n_ctx": 64, "n_sequences": 1}]}
    assert httpx.post(f"{url}/v1/speculation", json=post, headers=bearer(BACKS)).status_code == 200
    with visit() as page, asking_for(page, grammar=f"root ::= {json.dumps(MARKUP)}"):
        ask(page, MARKUP)
        expect(page.locator(".said")).to_have_text(MARKUP)
        expect(page.locator(".question .text")).to_have_text(MARKUP)
        expect(page.locator("#backs")).to_contain_text(MARKUP)
        assert page.locator("img, main script").count() == 0
        assert page.title() == "llama-duo"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_sticks_out_and_text_can_be_read(visit, scheme):
    with visit(viewport=NARROW, color_scheme=scheme) as page, asking_for(page, max_tokens=40):
        ask(page, f"{QUESTION} {'long' * 40}")
        expect(figures(page, 0)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
        ground, text, soft = page.evaluate(
            """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
                      getComputedStyle(document.querySelector('.note')).color]"""
        )
        assert (luminance(ground) < 0.5) == (scheme == "dark")
        assert min(contrast(ground, text), contrast(ground, soft)) >= 4.5  # WCAG 2, AA


def test_a_chosen_theme_is_kept(visit):
    ground = "getComputedStyle(document.body).backgroundColor"
    with visit(color_scheme="light") as page:
        page.get_by_label("Theme").select_option("Dark")
        assert luminance(page.evaluate(ground)) < 0.5
        page.reload()
        expect(page.get_by_label("Theme")).to_have_value("dark")
        assert luminance(page.evaluate(ground)) < 0.5
        page.get_by_label("Theme").select_option("System")
        assert luminance(page.evaluate(ground)) > 0.5


def luminance(color):
    """Relative luminance of a CSS color rgb(r, g, b), as WCAG 2 defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.usefixtures("speculating")
def test_the_keyboard_reaches_all_there_is(visit):
    with visit() as page, asking_for(page, max_tokens=8):
        page.keyboard.type(QUESTION)  # the field has the focus from the start
        page.keyboard.press("Enter")
        expect(page.locator("#announcement")).to_contain_text("The answer is complete")
        for name in ("Settings", "Send"):
            page.keyboard.press("Tab")
            expect(page.get_by_role("button", name=name)).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("switch")).to_be_focused()
        page.keyboard.press("Space")
        expect(page.get_by_role("switch")).not_to_be_checked()
        for _ in range(3):
            page.keyboard.press("Shift+Tab")
        expect(page.get_by_label("Your question")).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(page.get_by_label("Edit your question")).to_have_value(QUESTION)
        page.keyboard.press("Escape")
        page.keyboard.press("Alt+KeyS")
        expect(page.get_by_label("Search conversations")).to_be_focused()
        page.keyboard.press("Alt+KeyN")
        expect(page.locator("#welcome")).to_be_visible()


def test_an_admin_invites_a_machine_that_joins_and_is_revoked(visit, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with visit() as page:
        page.get_by_role("button", name="Invite…").click()
        expect(page.get_by_role("dialog")).to_contain_text("opens the lead to your network")
        page.get_by_label("A back that drafts").check()
        page.get_by_role("button", name="Open and invite").click()
        code = page.locator("#code code").first
        expect(code).to_have_text(re.compile("back --model MODEL --join duo3b.+"))
        expect(page.locator("#invitation-note")).to_contain_text("read the texts")
        expect(page.locator("#qr")).to_be_hidden()
        page.get_by_role("button", name="Done").click()
        page.get_by_role("button", name="Invite…").click()
        page.get_by_label("Chat on a phone").check()
        page.get_by_role("button", name="Open and invite").click()
        expect(code).to_have_text(re.compile("https://.+/#join=.+"))
        assert page.locator("#qr path").get_attribute("d")
        command = page.locator("#code-lines code").last.inner_text()
        assert command.startswith("chat --join duo3c")
        JoinedLead.find("client", "laptop", command.split()[-1])
        page.reload()
        row = page.locator("#members li")
        expect(row).to_contain_text("laptop")
        asked = []
        page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
        page.get_by_role("button", name="Revoke laptop").click()
        expect(row).to_have_count(0)
        page.get_by_role("button", name="Close", exact=True).click()
        expect(page.locator("#open")).to_be_hidden()
        assert [text.split()[0] for text in asked] == ["Revoke", "Close"]


def test_a_program_is_given_address_and_key(visit):
    with visit() as page:
        page.get_by_role("button", name="Invite…").click()
        page.get_by_label("A program that uses").check()
        page.get_by_role("button", name="Open and invite").click()
        expect(page.locator("#code-lines code")).to_have_count(2)
        url, key = page.locator("#code-lines code").all_inner_texts()
        models = httpx.get(f"{url}/models", headers={"Authorization": f"Bearer {key}"}, verify=False)  # noqa: S501
        assert models.status_code == 200
        page.get_by_text("the program refuse to connect?").click()
        expect(page.locator("#authority code").first).to_have_text(re.compile("https://.+/ca.crt"))
        page.get_by_role("button", name="Done").click()
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Revoke app").click()
        expect(page.locator("#members li")).to_have_count(0)
        page.get_by_role("button", name="Close", exact=True).click()


def test_a_phone_comes_in_by_the_address_of_its_qr_code(visit, browser):
    """The code is taken out of the address, works once, and is remembered."""
    with visit() as page:
        page.get_by_role("button", name="Invite…").click()
        page.get_by_role("button", name="Open and invite").click()
        link = page.locator("#code code").first.inner_text()
    phone = browser.new_context(ignore_https_errors=True)
    for address in (link, link.partition("#")[0]):
        page = phone.new_page()
        page.goto(address)
        expect(page.locator("#state")).to_have_text("ready")
        assert "join" not in page.url
        page.close()
    phone.close()
    another = browser.new_context(ignore_https_errors=True)
    page = another.new_page()
    page.goto(link)
    expect(page.locator("#key-reason")).to_contain_text("This code does not work")
    another.close()
