"""A lead with scripted answers, for the page in a browser."""

import json
import re
from importlib.resources import files
from urllib.parse import urlsplit

import pytest

from lead.http.page import FILES, HEADERS

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
SPECULATION = {
    "planner": PLANNER,
    "backs": BACKS,
    "lead": {"promise": "exact", "devices": "none"},
}


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

- [ ] open
- [x] done

Here \\(a^2\\) and $x_1$ for $5, not $10.

$$
\\frac{1}{2}
$$

\\[ \\sum_{i=1}^n i \\]
"""


class Lead:
    """Answers each question of the page with `answer`. Its words come by turns from the model and a back."""

    def __init__(self):
        self.answer = "Some **answer**."
        self.thinking = ""
        self.models = [{"id": "a-model"}]
        self.asked = []
        self.held = None  # or a list of questions that wait

    def sees(self):
        """Let its model see images."""
        self.models[0]["architecture"] = {"input_modalities": ["text", "image"]}

    def route(self, route):
        path = urlsplit(route.request.url).path
        if file := FILES.get(path):
            route.fulfill(body=file.content, headers=HEADERS | {"Content-Type": file.media_type})
        elif path == "/v1/models":
            route.fulfill(json={"data": self.models})
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
        if self.thinking:
            yield event({"delta": {"reasoning_content": self.thinking}}, model="a-model")
        for i, word in enumerate(self.answer.split(" ")):
            text = f" {word}" if i else word
            tokens = [{"text": text, "source": ("helper", None)[i % 2]}]
            yield event({"delta": {"content": text}}, speculation={"tokens": tokens}, model="a-model")
        timings = {"predicted_per_second": 42.0, "predicted_n": 8, "draft_n": 8, "draft_n_accepted": 4}
        yield event({"delta": {}, "finish_reason": "stop"}, timings=timings, seed=7)
        yield "data: [DONE]\n\n"


def event(choice, **fields):
    return f"data: {json.dumps({'choices': [choice], **fields})}\n\n"


def visit(context, path="/", state="ready"):
    page = context.new_page()
    page.goto(ORIGIN + path)
    page.locator("#state", has_text=state).wait_for()
    return page


def ask(page, text="Hello there"):
    n = page.locator(".figures").count()
    page.get_by_label("Your question").fill(text)
    page.keyboard.press("Enter")
    page.locator(".figures").nth(n).wait_for()


def violations(page):
    """axe-core's findings: the rule and the first element of each."""
    page.evaluate((files(pytest.importorskip("axe_playwright_python")) / "axe.min.js").read_text())
    return page.evaluate(
        "axe.run().then(({ violations }) => violations.map((it) => [it.id, it.nodes[0].html]))"
    )


def appearances(page):
    """The width of the page in each kind of window, in light and dark colors."""
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            yield size["width"]


def export(page):
    """The path of a file with all conversations."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Export all").click()
    return download.value.path()


def check_changes_are_refused(page, folder, changes):
    """Check that the page imports no file that it would not export in this form."""
    exported = export(page).read_text()
    for change in changes:
        told = json.loads(exported)
        change(told)
        (folder / "changed.json").write_text(json.dumps(told))
        page.reload()
        page.locator("#import-file").set_input_files(folder / "changed.json")
        page.locator("#list-note", has_text=re.compile("exported by this page|unknown format")).wait_for()


def articles(page):
    return page.locator("#transcript article").evaluate_all(
        "articles => articles.map((one) => one.outerHTML)"
    )


def listed(page):
    return page.locator("#conversation-list .open")
