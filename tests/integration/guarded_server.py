"""A server as operations should have it: an account with a password and few rights, and TLS with certificates on both
sides.

Redis and Valkey are often built without TLS, the one that comes with this package too; then what ends TLS stands before
it, here OpenSSL in this process. A `redis-server` on PATH that knows TLS ends it itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from broker.embedded_server import find_server_file
from broker.lifeline import tied_to_this_process
from tests.integration.test_launcher import until

PASSWORD = "s3same/o:pen@2"


@dataclass(frozen=True)
class GuardedServer:
    folder: Path
    port: int

    @property
    def query(self) -> str:
        files = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
        return "&".join(f"{name}={self.folder}/{file}" for name, file in files.items())

    @property
    def url(self) -> str:
        """Without the password, which lies in `password_file`."""
        return f"rediss://tidemill@localhost:{self.port}/0?{self.query}"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    def overseer(self, *, decode_responses: bool = True) -> redis.Redis:
        """A client with all rights, on the socket."""
        place = str(self.folder / "socket")
        return redis.Redis(unix_socket_path=place, username="overseer", password="o", decode_responses=decode_responses)


@contextlib.contextmanager
def guarded_server(folder: Path, accounts: str) -> Generator[GuardedServer]:
    """`accounts`: lines of an ACL file."""
    folder.mkdir(mode=0o700)
    make_certificates(folder)
    (folder / "password").write_text(PASSWORD + "\n")
    (folder / "acl").write_text(f"{accounts}user overseer on >o ~* &* +@all\n")
    program, own_tls = server_program()
    port = free_port()
    lines = [f"unixsocket {folder}/socket", f"dir {folder}", f"aclfile {folder}/acl", f"logfile {folder}/log"]
    lines += ["port 0", 'save ""', "appendonly yes", "maxmemory-policy noeviction"]
    if own_tls:
        names = {"cert-file": "server.pem", "key-file": "server.key", "ca-cert-file": "ca.pem"}
        lines += [f"tls-port {port}", "bind 127.0.0.1", *(f"tls-{key} {folder}/{file}" for key, file in names.items())]
    (folder / "conf").write_text("\n".join(lines) + "\n")
    with subprocess.Popen([program, folder / "conf"], stdout=-3, preexec_fn=tied_to_this_process()) as process:  # noqa: PLW1509
        server = GuardedServer(folder, port)
        try:
            until(lambda: answers(server))
            with contextlib.nullcontext() if own_tls else tls_before(folder, port):
                yield server
        finally:
            process.terminate()


def answers(server: GuardedServer) -> bool:
    with contextlib.suppress(redis.RedisError), contextlib.closing(server.overseer()) as client:
        return bool(client.ping())
    return False


def server_program() -> tuple[Path, bool]:
    """A server on PATH that knows TLS, else the package's own."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
            if "libssl" in linked:
                return Path(found), True
    return find_server_file(), False


def make_certificates(folder: Path) -> None:
    """An authority, and what it signed for `localhost` and for a client."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH: certificates cannot be made (apt-get install openssl)")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    for name in ("server", "client"):
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=DNS:localhost")
        openssl("req", "-x509", *key, *signed, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def tls_before(folder: Path, port: int) -> Generator[None]:
    """Ends TLS at the port, for clients with a certificate of ours, before the server's socket."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(folder / "socket"))
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    async def begin() -> asyncio.Server:
        loop.set_exception_handler(lambda *_: None)  # refused clients are the point, not news
        return await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)

    server = loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
