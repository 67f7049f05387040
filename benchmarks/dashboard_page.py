"""The dashboard's page in a real browser: how long it keeps a person waiting, and the longest that it does not listen.

For: `dashboard`. Not for: whether the page is right (its tests). A *task* is a stretch in which the page answers
neither key nor mouse; the browser tells those of 50 ms and more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

WATCHED_S = 5
OPENED = 10
TURNED = 5
LISTEN = """
window.tasks = [];
new PerformanceObserver((list) => list.getEntries().forEach((one) => window.tasks.push(one.duration)))
  .observe({ type: "longtask", buffered: true });
"""


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def used(port: int, run: str, groups: int, browser: str) -> dict[str, float]:
    """A person looks at the run, then through its finished groups."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=browser, args=sandbox)
        page = started.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script(LISTEN)
        address = f"http://127.0.0.1:{port}/runs/{run}"
        found = watched(started, page, "overview", lambda: overview(page, address))
        found |= watched(started, page, "rollouts", lambda: rollouts(page, groups))
        started.close()
    return found


def watched(browser: Browser, page: Page, view: str, act: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What `act` measures, and the longest task meanwhile: by the clock, and what of it the page was at work."""
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    found = act()
    costs = main_tasks_ms(json.loads(browser.stop_tracing())["traceEvents"])
    clock = page.evaluate("Math.max(0, ...window.tasks.splice(0))")  # 0 when none took 50 ms
    return {**found, f"{view}, longest task, ms": round(clock, 1), f"{view}, longest task, processor ms": max(costs)}


def main_tasks_ms(events: Sequence[Mapping[str, Any]]) -> list[float]:
    """Processor time of each task of the thread that draws and listens."""
    named = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    tasks = [one for one in events if one["name"].endswith("RunTask") and one.get("ph") == "X"]
    drawing = [one for one in tasks if named.get((one["pid"], one["tid"])) == "CrRendererMain"]
    return [round(one.get("tdur", 0) / 1e3, 1) for one in drawing]


def overview(page: Page, address: str) -> dict[str, float]:
    """Seconds until it is drawn; then it is looked at for a while."""
    began = time.monotonic()
    page.goto(address)
    page.locator(".chart .line").first.wait_for(state="attached")
    seconds = time.monotonic() - began
    page.wait_for_timeout(1e3 * WATCHED_S)
    return {"overview drawn, s": round(seconds, 3)}


def rollouts(page: Page, groups: int) -> dict[str, float]:
    """Seconds until the first list, the answer to each act, and a group in full."""
    page.keyboard.press("r")
    listed = seconds_until(page, f"{groups:,} groups")
    page.keyboard.press("/")
    page.keyboard.type(f"0/{groups - 1}", delay=60)
    sought = seconds_until(page, "1 group")
    page.get_by_role("button", name="Clear").click()
    page.locator("select[name=fate]").select_option("no_signal")
    filtered = seconds_until(page, f"{-(-groups // 3):,} groups")
    page.get_by_role("button", name="reward").click()
    for number in range(2, TURNED + 2):
        page.get_by_role("button", name="on ›").click()
        page.locator(".pager span", has_text=f"page {number} of").wait_for()
    opened = [one_group(page, number) for number in range(OPENED)]
    return {
        "list drawn, s": listed,
        "search drawn, s": sought,
        "filter drawn, s": filtered,
        "group drawn, s": round(sum(opened) / OPENED, 3),
    }


def seconds_until(page: Page, count: str) -> float:
    began = time.monotonic()
    page.locator(".count", has_text=re.compile(f"^{count}$")).wait_for(timeout=60_000)
    return round(time.monotonic() - began, 3)


def one_group(page: Page, number: int) -> float:
    began = time.monotonic()
    row = page.locator(".list tbody tr").nth(number)
    row.click()
    page.locator(".group h2", has_text=str(row.get_attribute("data-group"))).wait_for()
    return time.monotonic() - began
