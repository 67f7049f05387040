"""The dashboard in a real browser: it loads, moves with the run, finds and opens groups, and outlives its server.

Headless Chromium, Debian's package `chromium`, driven by Playwright. One scripted run and one dashboard for the file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from deploy.run_check import load_run
from deploy.run_folder import new_run_folder
from tests.integration.dashboards import Dashboard
from tests.integration.test_dashboard import HOSTILE, lay_run
from tests.integration.test_launcher import QUICK, Launched, lay_model, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SLOW = ["train.options={pace_s=0.2}", "run.steps=100000", "prompts.eval.every=5"]
expect.set_options(timeout=20_000)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here, so the dashboard's page is not tested: apt-get install -y chromium"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "runs"


@pytest.fixture(scope="module")
def launched(root: Path) -> Generator[Launched]:
    """A run that goes on until it is interrupted."""
    folder = new_run_folder(load_run("addition", [*QUICK, *SLOW]), root, datetime.now(UTC)).resolve()
    lay_model(folder / "model")
    run = Launched(folder)
    run.reach(3)
    yield run
    if run.process.poll() is None:
        run.interrupt()
        run.end()


@pytest.fixture(scope="module")
def dashboard(root: Path) -> Generator[Dashboard]:
    with Dashboard(root) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    """A tab in which any error of a script fails the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(15_000)
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on(
        "console", lambda said: errors.append(said.text) if said.type == "error" and "net::" not in said.text else None
    )
    yield tab
    context.close()
    assert errors == []


def version_shown(page: Page) -> int:
    shown = page.locator(".tile strong").first.inner_text()
    return int(shown.replace(",", "")) if shown.strip("–") else 0


PAINTED = """() => {
  const canvas = document.querySelector(".lanes");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) colours.add(pixels.slice(i, i + 3).join());
  return colours.size;
}"""


def reported(run: Path) -> str:
    """`tidemill report`: where its page is."""
    command = [sys.executable, "-m", "deploy.cli", "report", str(run)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    path = re.search(r"page: (\S+/report\.html) · ", printed)
    assert path, printed
    return path[1]


INTRUDE = """() => {
  document.body.insertAdjacentHTML("beforeend", `<b onclick="window.broken = 1" style="color: red">x</b>`);
  document.body.lastChild.click();
  for (const [name, value] of [["textContent", "window.broken = 2"], ["src", "data:text/javascript,window.broken=3"]]) {
    document.write(`<script ${name === "src" ? `src="${value}"` : ""}>${name === "src" ? "" : value}</` + "script>");
  }
}"""


def painted(page: Page) -> int:
    """Colours on the canvas of slots and processes."""
    return page.evaluate(PAINTED)


def test_a_living_run_is_opened_from_the_list_and_moves_with_the_run(
    page: Page, dashboard: Dashboard, launched: Launched
) -> None:
    page.goto(dashboard.address)
    page.get_by_role("link", name=launched.folder.name).click()
    expect(page.locator("#head .state")).to_have_text("live")
    first = until(lambda: version_shown(page))
    until(lambda: version_shown(page) >= first + 3)
    for name in ("Reward", "Held-out accuracy", "Backlog, groups", "Pools, slots or processes"):
        expect(page.get_by_role("img", name=name).locator(".line").first).to_have_attribute(
            "d", re.compile("^M.*[LHV]")
        )
    until(lambda: painted(page) > 4)
    expect(page.locator(".bar").first).to_be_visible()
    expect(page.locator("td.good").first).to_have_text("✓")


def test_values_are_read_by_keys_and_a_stretch_is_zoomed_into(
    page: Page, dashboard: Dashboard, launched: Launched
) -> None:
    page.goto(f"{dashboard.address}runs/{launched.folder.name}")
    chart = page.get_by_role("img", name=re.compile("^Reward:"))
    expect(chart.locator(".line").first).to_be_attached()
    chart.focus()
    page.keyboard.press("Home")
    expect(page.locator(".tip:visible")).to_contain_text("v1")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip:visible")).to_contain_text("v2")
    page.locator(".lanes").focus()
    page.keyboard.press("ArrowDown")
    tip = page.locator(".tip:visible")
    expect(tip).to_contain_text(re.compile(r"rollout-0\s*rollout: \w+"))

    def busy_share_told() -> bool:
        """A role's first moments know no busy share yet: a later one is looked at."""
        page.keyboard.press("ArrowRight")
        return re.search(r"rollout: serving \d+ % busy, version", tip.inner_text()) is not None

    until(busy_share_told)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tip:visible")).to_contain_text("reward-0")
    before = chart.locator(".x-label").all_inner_texts()

    def zoomed() -> bool:
        """A living page may move under the mouse: then it is dragged again."""
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 60, steps=4)
        page.mouse.up()
        return chart.locator(".x-label").all_inner_texts() != before

    until(zoomed)


def test_groups_are_filtered_opened_and_closed_by_keys_alone(page: Page, dashboard: Dashboard, root: Path) -> None:
    run = lay_run(root, 70, steps=3)
    page.goto(f"{dashboard.address}runs/{run.name}")
    page.keyboard.press("r")
    expect(page.locator(".count")).to_have_text("70 groups")
    page.keyboard.press("/")
    page.keyboard.type("0/69")
    expect(page.locator(".count")).to_have_text("1 group")
    page.keyboard.press("Tab")
    page.locator(".list tbody tr").first.focus()
    page.keyboard.press("Enter")
    opened = page.locator(".group")
    expect(opened).to_contain_text("the rule raised: division by zero")
    expect(opened).to_contain_text(HOSTILE)
    assert page.evaluate("window.broken") is None, "what a model wrote must not run"
    page.keyboard.press("Escape")
    expect(opened).to_have_count(0)
    page.get_by_role("button", name="Clear").click()
    page.locator("select[name=fate]").select_option("no_signal")
    expect(page.locator(".count")).to_have_text("23 groups")
    page.get_by_label("Reward from").fill("0.65")
    expect(page.locator(".count")).not_to_have_text("23 groups")
    assert "fate=no_signal" in page.url
    assert "reward_min=0.65" in page.url


def test_tokens_are_shaded_by_advantage_by_version_and_by_probability(
    page: Page, dashboard: Dashboard, root: Path
) -> None:
    run = lay_run(root, 4, steps=3)
    page.goto(f"{dashboard.address}runs/{run.name}#rollouts?group=addition/0/1")
    tokens = page.locator(".sibling").nth(1).locator(".token")
    expect(tokens).to_have_text(["6", "4", "1", "</s>"])

    def shades() -> list[str]:
        return [token.evaluate("one => getComputedStyle(one).backgroundColor") for token in tokens.all()]

    assert len(set(shades())) == 1
    assert shades()[0] != page.locator(".sibling").nth(0).locator(".token").first.evaluate(
        "one => getComputedStyle(one).backgroundColor"
    ), "the worse sibling looks other than the better one"
    page.get_by_label("version", exact=True).check()
    by_version = shades()
    assert by_version[0] == by_version[1] != by_version[2] == by_version[3]
    page.get_by_label("probability", exact=True).check()
    assert len(set(shades())) == 4
    expect(tokens.nth(2)).to_have_attribute("title", "token 3 · version 4 · probability 25 %")


def test_the_page_is_dark_where_the_reader_wants_it(browser: Browser, dashboard: Dashboard, root: Path) -> None:
    run = lay_run(root, steps=3)
    seen: dict[str, list[int]] = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
        tab = context.new_page()
        tab.goto(f"{dashboard.address}runs/{run.name}")
        expect(tab.locator(".tile strong").first).to_have_text("3")
        backs = [
            tab.locator(one).first.evaluate("one => getComputedStyle(one).backgroundColor")
            for one in ("body", ".panel")
        ]
        seen[scheme] = [int(back.split("(")[1].split(",")[0]) for back in backs]
        context.close()
    assert all(shade > 200 for shade in seen["light"])
    assert all(shade < 60 for shade in seen["dark"])


def test_an_empty_run_says_that_nothing_is_there_yet(page: Page, dashboard: Dashboard, root: Path) -> None:
    run = lay_run(root)
    page.goto(f"{dashboard.address}runs/{run.name}")
    expect(page.locator("#head .state")).to_have_text("has not begun")
    expect(page.get_by_text("no step yet").first).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator(".list")).to_contain_text("no finished group fits")
    page.keyboard.press("d")
    expect(page.locator(".records")).to_contain_text("no group was buried")


def test_the_page_goes_on_when_its_server_was_started_again(page: Page, root: Path, launched: Launched) -> None:
    with Dashboard(root) as first:
        page.goto(f"{first.address}runs/{launched.folder.name}")
        expect(page.locator("#head .state")).to_have_text("live")
        first.end()
        assert first.text().count("\n") == 1, f"it leaves without a word: {first.text()}"
    expect(page.locator("#head .state")).to_have_text("reconnecting")
    shown = version_shown(page)
    assert shown > 0, "what was known stays on the page"
    with Dashboard(root, port=first.port):
        expect(page.locator("#head .state")).to_have_text("live")
        until(lambda: version_shown(page) > shown)


def test_a_run_that_has_ended_is_browsed_without_its_server_and_its_report_without_any(
    page: Page, dashboard: Dashboard, launched: Launched
) -> None:
    page.goto(f"{dashboard.address}runs/{launched.folder.name}")
    expect(page.locator("#head .state")).to_have_text("live")
    launched.interrupt()
    launched.end()
    expect(page.locator("#head .state")).to_have_text("not running")
    page.keyboard.press("r")
    expect(page.locator(".count")).not_to_have_text("0 groups")
    page.goto(f"file://{reported(launched.folder)}")
    expect(page.locator("#head .state")).to_have_text("as of this report")
    until(lambda: version_shown(page) > 3)
    until(lambda: painted(page) > 4)
    page.keyboard.press("r")
    page.locator("select[name=fate]").select_option("trained")
    page.locator(".list tbody tr").first.click()
    expect(page.locator(".group")).to_contain_text("trained into version")
    expect(page.locator(".token").first).to_be_visible()


def test_a_report_runs_no_script_and_fetches_nothing_but_what_it_was_made_of(browser: Browser, root: Path) -> None:
    run = lay_run(root, 10, steps=3)
    report = reported(run)
    context = browser.new_context()
    tab = context.new_page()
    refused: list[str] = []
    tab.on("console", lambda said: refused.append(said.text) if said.type == "error" else None)
    tab.goto(f"file://{report}")
    expect(tab.locator(".tile strong").first).to_have_text("3")
    tab.keyboard.press("?")
    tab.get_by_role("button", name="Close").click()
    tab.keyboard.press("r")
    tab.locator(".list tbody tr").first.click()
    expect(tab.locator(".token").first).to_be_visible()
    assert tab.locator(".token").first.evaluate("one => getComputedStyle(one).backgroundColor") != "rgba(0, 0, 0, 0)"
    assert refused == [], "all that the page itself does is allowed"
    tab.evaluate(INTRUDE)
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate("fetch('http://127.0.0.1:9/').catch(() => 'refused')") == "refused"
    for what in ("inline style", "inline event handler", "inline script", "Loading the script", "Connecting to"):
        assert any(what in text and "violates" in text for text in refused), refused
    context.close()


def test_a_browser_logs_in_with_the_token(page: Page, root: Path) -> None:
    with Dashboard(root, TIDEMILL_TOKEN="sesame") as guarded:
        page.goto(guarded.address)
        expect(page).to_have_url(re.compile("/login"))
        page.get_by_label("Token").fill("sesame")
        page.get_by_role("button", name="Look").click()
        expect(page.get_by_role("heading", name="Runs").first).to_be_visible()
        assert "sesame" not in page.url
