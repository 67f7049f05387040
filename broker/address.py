"""The server's address: what a client is given, and what people may see of it.

For: everybody who connects to the server or names it in a message. Not for: which address a run has (`settings`), or
connecting (`redis_connection`). It is written as Redis clients write it:

    redis://USER:PASSWORD@HOST:6379/0
    rediss://USER:PASSWORD@HOST:6380/0?ssl_ca_certs=/etc/ca.pem&ssl_certfile=/etc/me.pem&ssl_keyfile=/etc/me.key

The password may lie in a file instead, which `TIDEMILL_BROKER_PASSWORD_FILE` names: then it is in no environment, and
added only to what a client is given.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from broker.errors import Misconfigured

PASSWORD_FILE_VARIABLE: Final = "TIDEMILL_BROKER_PASSWORD_FILE"
SCHEMES: Final = ("redis", "rediss", "unix")
PLAIN: Final = ("db", "username", "password")
FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
TLS: Final = (*FILES, "ssl_cert_reqs")
"""What may stand behind the `?`."""
SECRET: Final = re.compile(r"(?<=password=)[^&]*")


def without_password(url: str) -> str:
    """The address as it may be shown: messages end in logs, and logs are read by many. Of what is no address at all
    rather too little is shown.
    """
    scheme, mark, rest = url.partition("://")
    if not mark or (scheme == "unix" and rest.startswith("/")):
        return SECRET.sub("…", url)
    account, at, place = rest.rpartition("@")
    user, colon, _ = account.partition(":")
    shown = f"{user}:…@" if colon else account + at
    return f"{scheme}://{shown}{SECRET.sub('…', place)}"


def has_password(url: str) -> bool:
    return without_password(url) != url


def for_client(url: str) -> str:
    """The address with its password, for a client and nobody else. Raises Misconfigured for one that cannot be read,
    without saying of it what nobody may see.
    """
    try:
        parts = urlsplit(url)
        readable = parts.scheme in SCHEMES and (parts.port is None or parts.port > 0)
    except ValueError:
        readable = False
    if not readable:
        raise Misconfigured(
            f"the server's address {without_password(url)} cannot be read; nothing was asked; write redis://, "
            "rediss:// or unix://, a number as the port, and in a password all but letters and digits as %XX"
        )
    check_query(url)
    file = os.environ.get(PASSWORD_FILE_VARIABLE)
    if not file or has_password(url):
        return url
    return with_password(url, password_in(Path(file)))


def check_query(url: str) -> None:
    """Raises Misconfigured for what no client understands, and for a file of TLS that is not there."""
    parts = urlsplit(url)
    for name, value in parse_qsl(parts.query):
        if name not in (*PLAIN, *TLS) or (name in TLS and parts.scheme != "rediss"):
            known = ", ".join((*PLAIN, *TLS) if parts.scheme == "rediss" else PLAIN)
            raise Misconfigured(
                f"the server's address {without_password(url)} says {name!r}, which nobody understands there; nothing "
                f"was asked; {parts.scheme}:// knows {known}"
            )
        if name in FILES and not os.access(value, os.R_OK):
            raise Misconfigured(
                f"the server's address {without_password(url)} names {value}, which this account cannot read; nothing "
                "was asked; put the file there or correct the address"
            )


def password_in(file: Path) -> str:
    """Raises Misconfigured for a file that cannot be read or is empty."""
    try:
        password = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"{PASSWORD_FILE_VARIABLE} = {file} cannot be read ({type(error).__name__}); nothing was asked; put the "
            "password there, readable by this account, or unset the variable"
        ) from None
    if not password:
        raise Misconfigured(f"{PASSWORD_FILE_VARIABLE} = {file} is empty; nothing was asked; put the password there")
    return password


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}"))
