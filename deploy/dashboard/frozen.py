"""The page of a run as one file that needs nothing else: what a run came to, to be kept, sent and opened anywhere.

For: `report.html` of `tidemill report`. Not for: pictures (`pictures`) or numbers for programs (`report.json`). It is
the dashboard's own page, its modules and styles put into it, with the run's facts and some of its finished groups.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from broker.archive_index import GroupIndex, Summary
from deploy.dashboard.rollout_text import group_facts
from deploy.dashboard.watch import Watch
from deploy.run_settings import RunSettings

PAGE = Path(__file__).parent / "page"
REPORT_PAGE = "report.html"
A_FATE = 60
"""Most finished groups of each fate that are kept, the newest."""
MOST_BYTES = 3_000_000
"""Of groups in the page; what comes after is left out, the older ones of every fate."""
CHARSET = '<meta charset="utf-8">'
IMPORT = re.compile(r'from "\./([\w.]+)"')


def freeze(folder: Path, settings: RunSettings) -> Path:
    """Write the page into the run folder, whole or not at all."""
    facts = asyncio.run(frozen_facts(folder, settings))
    draft = folder / f".{REPORT_PAGE}"
    draft.write_text(page_of(facts, secrets.token_urlsafe(16)), encoding="utf-8")
    draft.replace(folder / REPORT_PAGE)
    return folder / REPORT_PAGE


async def frozen_facts(folder: Path, settings: RunSettings) -> dict[str, Any]:
    watch = Watch(folder, settings)
    try:
        whole = await watch.whole()
    finally:
        await watch.close()
    return {"whole": whole, **groups_of(folder, settings)}


def groups_of(folder: Path, settings: RunSettings) -> dict[str, Any]:
    """Some groups of every fate, as rows and whole: the newest, the fates in turn, so that none fills the page."""
    rows: list[Summary] = []
    wholes: dict[str, Any] = {}
    with GroupIndex(folder / "groups") as index:
        index.refresh()
        fates = index.counts()
        size = 0
        for row in in_turn([index.search(fate=reason_of(fate), limit=A_FATE).rows for fate in fates]):
            if size > MOST_BYTES:
                break
            if closed := index.read(row.id):
                wholes[row.id] = group_facts(closed, folder, settings)
                size += len(json.dumps(wholes[row.id]))
                rows.append(row)
    return {"groups": [asdict(row) for row in rows], "whole_groups": wholes, "fates": fates, "all": sum(fates.values())}


def reason_of(fate: str) -> str:
    """What the index finds it by: `retired no_signal` by its reason."""
    return fate.split(" ", 1)[-1]


def in_turn(fates: Sequence[Sequence[Summary]]) -> list[Summary]:
    """The first of each, then the second of each, and so on."""
    return [row for turn in zip_longest(*fates) for row in turn if row is not None]


def page_of(facts: dict[str, Any], nonce: str) -> str:
    """`index.html` with everything it asks the server for in its place; only what bears the nonce acts."""
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    for name in re.findall(r'<link rel="stylesheet" href="/static/([\w.]+)">', page):
        style = (PAGE / name).read_text(encoding="utf-8")
        page = page.replace(
            f'<link rel="stylesheet" href="/static/{name}">', f'<style nonce="{nonce}">\n{style}</style>'
        )
    page = page.replace("/static/icon.svg", data_url("image/svg+xml", (PAGE / "icon.svg").read_text(encoding="utf-8")))
    page = page.replace(CHARSET, f"{CHARSET}\n{policy(nonce)}")
    modules = {f"tidemill/{path.name}": data_url("text/javascript", module(path)) for path in sorted(PAGE.glob("*.js"))}
    scripts = (
        f'<script type="importmap" nonce="{nonce}">{json.dumps({"imports": modules})}</script>\n'
        f'<script type="application/json" id="frozen">{inert(json.dumps(facts, separators=(",", ":")))}</script>\n'
        f'<script type="module" nonce="{nonce}">import "tidemill/main.js";</script>'
    )
    return page.replace('<script type="module" src="/static/main.js"></script>', scripts)


def policy(nonce: str) -> str:
    """No network, no form, no style or script but the page's own; a module may load what it imports."""
    words = (
        f"default-src 'none'; img-src data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{words}">'


def module(path: Path) -> str:
    """Its imports by name instead of by place: a module that lies in the page has no place."""
    return IMPORT.sub(r'from "tidemill/\1"', path.read_text(encoding="utf-8"))


def data_url(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def inert(content: str) -> str:
    """JSON that nothing in it can end: what a model wrote may look like a tag."""
    return content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
