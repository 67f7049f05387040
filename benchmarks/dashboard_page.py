"""The dashboard's page in a real browser: how long it keeps a person waiting, and the longest that it does not listen.

For: `dashboard`. Not for: whether the page is right (its tests). A *task* is a stretch in which the page answers
neither key nor mouse; the browser tells those of 50 ms and more.
"""

from __future__ import annotations

import os
import re
import shutil
import time

from playwright.sync_api import CDPSession, Page, sync_playwright

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
        driven = page.context.new_cdp_session(page)
        driven.send("Performance.enable", {"timeDomain": "threadTicks"})
        found = {"overview drawn, s": overview(page, f"http://127.0.0.1:{port}/runs/{run}")}
        found |= {"overview, longest task, ms": longest(page), "overview, processor ms": processor_ms(driven)}
        found |= rollouts(page, groups)
        found |= {"rollouts, longest task, ms": longest(page), "all, processor ms": processor_ms(driven)}
        started.close()
    return found


def processor_ms(driven: CDPSession) -> float:
    """Of the thread that draws and listens, since the page was opened: no waiting for a core is in it."""
    told = {one["name"]: one["value"] for one in driven.send("Performance.getMetrics")["metrics"]}
    return round(1e3 * told["TaskDuration"], 1)


def longest(page: Page) -> float:
    """Of the tasks since the last time; 0 when none took 50 ms."""
    return round(page.evaluate("Math.max(0, ...window.tasks.splice(0))"), 1)


def overview(page: Page, address: str) -> float:
    """Seconds until it is drawn; then it is watched, drawn anew every second."""
    began = time.monotonic()
    page.goto(address)
    page.locator(".chart .line").first.wait_for(state="attached")
    seconds = time.monotonic() - began
    page.wait_for_timeout(1e3 * WATCHED_S)
    return round(seconds, 3)


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
