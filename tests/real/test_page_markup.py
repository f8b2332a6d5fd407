"""The page's display of a model's text, in chromium, with a scripted lead."""

import re

import pytest

from tests.real.page_lead import MARKDOWN, Lead, ask, visit

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.real
expect = sync_api.expect


@pytest.fixture
def lead():
    lead = Lead()
    lead.answer = MARKDOWN
    return lead


def test_markdown_becomes_elements_and_no_html(page):
    ask(page)
    said = page.locator(".said")
    expect(said.locator("h3")).to_have_text("Title")
    expect(said.locator("p em")).to_have_text(["em"])
    expect(said.locator("strong")).to_have_text(["strong", "bold"])
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
    boxes = said.locator("li").get_by_role("checkbox")
    assert boxes.evaluate_all("all => all.map((it) => it.checked)") == [False, True]
    expect(said.locator("td").last).to_have_css("text-align", "right")
    formulas = said.locator("math annotation")
    assert formulas.all_text_contents() == ["a^2", "x_1", "\\frac{1}{2}", "\\sum_{i=1}^n i"]
    expect(said).to_contain_text("for $5, not $10.")


HOSTILE = {
    "backticks": "".join("`" * i + " " for i in range(300)),
    "stars": "*" * 50_000,
    "emphasis": "*a " * 20_000,
    "brackets": "[" * 50_000,
    "quotes": "> " * 20_000,
    "formulas": "\\(x " * 20_000,
    "displays": "\\[\n" * 20_000,
    "dollars": "$$x " * 20_000,
    "amounts": "$x" * 30_000,
    "a long line": f"```js\n{'x=1;' * 20_000}\n```",
}


def test_no_text_stops_the_page(context, lead):
    for name, hostile in HOSTILE.items():
        lead.answer = f"{hostile}\n\nThe end of {name}."
        page = visit(context)
        ask(page)
        expect(page.locator(".said > p").last).to_have_text(f"The end of {name}.")
        page.close()


def test_a_text_that_comes_in_pieces_looks_like_one_that_came_at_once(page):
    differs = page.evaluate(
        """async (text) => {
          const { GrowingText } = await import("/page/growing_text.js");
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


GROW = """async ([text, step]) => {
  const { GrowingText } = await import("/page/growing_text.js");
  const element = document.createElement("div");
  const grown = new GrowingText(element, { add() {} }, true);
  const highlight = hljs.highlight;
  let n = 0;
  hljs.highlight = (code, ...more) => {
    n += code.length;
    return highlight(code, ...more);
  };
  for (let at = 0; at < text.length; at += step) {
    grown.add([{ text: text.slice(at, at + step), source: null }]);
    grown.paint();
  }
  hljs.highlight = highlight;
  const strings = [...element.querySelectorAll(".code-string")].map((one) => one.textContent);
  return { n, said: element.querySelector("code").textContent, strings };
}"""


def test_code_that_grows_is_not_colored_all_over_again(page):
    code = "\n".join(f"def f{i}(x):\n    return x + {i}  # the next" for i in range(1000))
    grown = page.evaluate(GROW, [f"```python\n{code}\n```\n", 200])
    assert grown["said"] == code
    assert grown["n"] < 8 * len(code)


def test_a_text_in_code_that_is_long_has_one_color(page):
    text = "".join(f"line {i} of it\n" for i in range(150))
    code = f'x = """{text}"""\ny = 1'
    grown = page.evaluate(GROW, [f"```python\n{code}\n```\n", 50])
    assert grown["strings"] == [f'"""{text}"""']


GROWS = """async (text) => {
  const { AnswerView } = await import("/page/answer.js");
  const { Legend } = await import("/page/sources.js");
  const element = document.querySelector("#transcript");
  const transcript = { element, legend: new Legend(document.createElement("ul")) };
  const answer = { model: "m", content: "", thinking: "", runs: [], thinkingMs: 0, figures: "42 tokens/s" };
  const grow = (change) => change();
  const view = new AnswerView(answer, { ...transcript, grow, actionsOfAnswer: () => "" });
  element.replaceChildren(view.element);
  view.begin();
  const said = view.element.querySelector(".said");
  const seen = [[said.offsetTop, said.offsetHeight]];
  view.append([{ text, source: null }]);
  view.finish([]);
  return [...seen, [said.offsetTop, said.offsetHeight]];
}"""


def test_an_answer_begins_and_ends_where_it_stays(page):
    """Neither a heading nor the sign that more comes moves text that has been shown."""
    (top, height), (top_at_end, _) = page.evaluate(GROWS, "# Title\n\nText.")
    assert (top, height) == (top_at_end, 0)


def test_code_is_copied_as_it_is(page):
    ask(page)
    page.get_by_role("button", name="Copy code").click()
    expect(page.get_by_role("button", name="Copy code")).to_have_text("Copied")
    page.get_by_label("Your question").focus()
    page.keyboard.press("Control+V")
    expect(page.get_by_label("Your question")).to_have_value('x = "`*_<b>"')


UNREADABLE = [
    "\\(\\frac{1}{\\)",
    "$$\\nosuch$$",
    "\\[\\def\\a{\\a\\a}\\a\\]",
    "\\(\\href{javascript:x}{y}\\)",
    "\\(\\underbrace_x\\)",  # at which Temml itself fails
]


def test_a_formula_that_cannot_be_read_does_no_harm(page, lead):
    lead.answer = "".join(f"{text}\n\nAfter {i}.\n\n" for i, text in enumerate(UNREADABLE))
    ask(page)
    for i in range(len(UNREADABLE)):
        expect(page.locator(".said > p").get_by_text(f"After {i}.", exact=True)).to_be_visible()
    assert page.locator(".said [href]").count() == 0


def test_code_has_the_colors_of_its_language(page, lead):
    lead.answer = "```python\ndef f(): return 'x'\n```"
    ask(page)
    expect(page.locator(".said .code-keyword")).to_have_text(["def", "return"])
    expect(page.locator(".said .code-string")).to_have_text("'x'")


def test_each_drafted_word_has_its_own_color(page):
    """Marks may stand around a word. Each kind of sign has its own source."""
    wrong = page.evaluate(
        """async (text) => {
          const { GrowingText } = await import("/page/growing_text.js");
          const element = document.createElement("div");
          const grown = new GrowingText(element, { add() {} }, true);
          grown.add([...text].map((sign) => ({ text: sign, source: sign })));
          grown.paint();
          const runs = [...element.querySelectorAll(".token")];
          const said = runs.map((run) => [run.textContent, run.title.at(-1)]);
          return said.filter(([text, by]) => text[0] !== by);
        }""",
        MARKDOWN,
    )
    assert wrong == []


def test_reasoning_is_folded_and_can_be_opened(page, lead):
    lead.thinking = "First this."
    ask(page)
    thinking = page.locator(".thinking")
    expect(thinking.get_by_text("First this.")).to_be_hidden()
    thinking.locator("summary").press("Enter")
    expect(thinking.get_by_text("First this.")).to_be_visible()
    expect(thinking.locator("summary")).to_have_text(re.compile("^Thought"))
