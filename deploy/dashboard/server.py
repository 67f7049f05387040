"""The dashboard's HTTP: pages, their files, JSON, and one stream of events a browser.

For: `tidemill dashboard`. Not for: looking at runs (`watch`), who may (`access`). Nothing here changes a run.

    /  /runs/RUN  /static/…  /login       pages
    /api/runs                             every run, newest first
    /api/runs/RUN                         a run, as it is
    /api/runs/RUN/events                  the same, then what is new, as server-sent events
    /api/runs/RUN/groups?fate=…           finished groups: reward_min, length_max, version_min, text, sort, page, …
    /api/runs/RUN/groups/GROUP            one of them
    /health
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from deploy.dashboard.access import Access, own_path
from deploy.dashboard.desk import Desk
from deploy.dashboard.rollout_text import group_facts
from deploy.dashboard.watch import Watch, encoded

PAGE = Path(__file__).parent / "page"
RETRY_MS = 1000
"""After so long a browser that lost the server tries again."""


def application(root: Path, token: str = "") -> Starlette:
    """The whole application over the runs in `root`; an empty token lets everybody in who uses a loopback address."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        app.state.desk = Desk(root)
        yield
        await app.state.desk.close()

    routes = [
        Route("/", page),
        Route("/runs/{run}", page),
        Route("/login", login_page),
        Route("/login", login, methods=["POST"]),
        Route("/health", health),
        Route("/api/runs", runs),
        Route("/api/runs/{run}", run),
        Route("/api/runs/{run}/events", events),
        Route("/api/runs/{run}/groups", groups),
        Route("/api/runs/{run}/groups/{group:path}", group),
        Mount("/static", StaticFiles(directory=PAGE)),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Access, token=token)])
    app.state.access = Access(app, token)
    return app


def desk(request: Request) -> Desk:
    return request.app.state.desk


def watch(request: Request) -> Watch:
    """The run an address names; 404 when there is none."""
    name = request.path_params["run"]
    found = desk(request).watch(name)
    if found is None:
        raise HTTPException(404, f"there is no run {name!r} here")
    return found


async def page(_: Request) -> Response:
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


async def login_page(_: Request) -> Response:
    return FileResponse(PAGE / "login.html")


async def login(request: Request) -> Response:
    shown = parse_qs((await request.body()).decode(errors="replace")).get("token", [""])[0]
    access: Access = request.app.state.access
    if access.token and access.matches(shown):
        return access.welcome(own_path(request.query_params.get("next", "/")))
    refused = (PAGE / "login.html").read_text().replace("<!-- refused -->", "That is not the token.")
    return HTMLResponse(refused, status_code=401)


async def health(request: Request) -> Response:
    return JSONResponse({"ok": True, "watched": desk(request).watched()})


async def runs(request: Request) -> Response:
    return JSONResponse(await run_in_threadpool(desk(request).rows))


async def run(request: Request) -> Response:
    watched = watch(request)
    with watched.viewer():  # so that what is opened for it is closed again when nobody looks any more
        return JSONResponse(await watched.whole())


async def events(request: Request) -> Response:
    """consumes: looks   produces: events   waits for: the next look   unblocked by: it, or the browser's leaving"""
    watched = watch(request)

    async def lines() -> AsyncGenerator[str]:
        yield f"retry: {RETRY_MS}\n\n"
        async with contextlib.aclosing(watched.messages()) as messages:
            async for event, message in messages:
                yield encoded(event, message)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


async def groups(request: Request) -> Response:
    rollouts = desk(request).rollouts(watch(request).folder)
    try:
        return JSONResponse(await rollouts.page(request.query_params))
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


async def group(request: Request) -> Response:
    watched, name = watch(request), request.path_params["group"]
    closed = await desk(request).rollouts(watched.folder).group(name)
    if closed is None:
        raise HTTPException(404, f"no finished group {name!r} in this run's folder")
    return JSONResponse(await run_in_threadpool(group_facts, closed, watched.folder, watched.settings))
