"""Who may look: everybody on this machine by default, else whoever shows the token; and what browsers may do with it.

For: one layer around the whole application. Not for: what is shown. A token comes as `Authorization: Bearer …`, as a
cookie, or once as `?token=…`, which is answered with the cookie and an address without it. It is never logged.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "tidemill_token"
OPEN_PATHS = ("/health", "/login", "/static/")
"""Served without a token: none of them says anything of a run."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Access:
    """Around the application: refuses who may not look, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """`token`: empty on a loopback address, where any process of this machine may look."""
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self.refusal(Request(scope))
        await (refusal or self.app)(scope, receive, send_with_headers)

    def refusal(self, request: Request) -> Response | None:
        """None for who may look."""
        if not self.token:
            return None if is_loopback(request.url.hostname or "") else strange_host(request)
        if request.url.path.startswith(OPEN_PATHS) or self.is_known(request):
            return None
        if self.matches(request.query_params.get("token", "")):
            return self.welcome(address_without_token(request))
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"/login?{urlencode({'next': request.url.path})}", status_code=303)
        return JSONResponse({"error": "a token is needed: Authorization: Bearer TOKEN"}, status_code=401)

    def is_known(self, request: Request) -> bool:
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        bearer = shown.strip() if kind.lower() == "bearer" else ""
        return self.matches(bearer) or self.matches(request.cookies.get(COOKIE, ""))

    def matches(self, shown: str) -> bool:
        """In a time that does not tell how much of it is right."""
        return hmac.compare_digest(shown.encode(), self.token.encode())

    def welcome(self, path: str) -> Response:
        """The cookie, for this browser's session."""
        response = RedirectResponse(path, status_code=303)
        response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
        return response


def strange_host(request: Request) -> Response:
    """A page elsewhere whose name was made to point here may not read what is here."""
    host = request.headers.get("host", "")
    return PlainTextResponse(
        f"this dashboard answers on the loopback address only, not as {host[:80]!r}; use http://127.0.0.1, or start "
        "it with --host, which asks for a token",
        status_code=421,
    )


def address_without_token(request: Request) -> str:
    rest = urlencode([pair for pair in parse_qsl(request.url.query) if pair[0] != "token"])
    return request.url.path + (f"?{rest}" if rest else "")


def own_path(path: str) -> str:
    """Where a login may lead: a path here, never another host."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"
