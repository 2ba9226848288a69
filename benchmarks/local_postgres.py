"""A PostgreSQL server on a temporary folder, from the programs of Debian's package."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
HAS_POSTGRESQL = shutil.which("initdb") is not None or bool(BINARIES)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Postgres:
    """A server of its own on a temporary folder, under the user postgres where tests are root's."""

    folder: Path
    port: int
    owner: int | None  # the user that it runs as, if that is another one
    durable: bool = True  # what is committed survives a power cut

    @classmethod
    def make(cls, *, durable: bool = True) -> "Postgres":
        """Below the system's folder for temporary files, which every user may enter."""
        folder = Path(tempfile.mkdtemp(prefix="fairhorizon-postgres-"))
        owner = pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else None
        if owner is not None:
            os.chown(folder, owner, -1)
        server = cls(folder, free_port(), owner, durable)
        options = ("-U", "fairhorizon", "-A", "trust", "-E", "UTF8", "--no-sync")
        server.call("initdb", "-D", str(folder), *options)
        return server

    def remove(self) -> None:
        """Stop it at once and delete everything."""
        if (self.folder / "postmaster.pid").exists():
            with contextlib.suppress(subprocess.CalledProcessError):  # it was killed
                self.stop("immediate")
        shutil.rmtree(self.folder)

    def kill(self) -> None:
        """As a power cut would: all its processes end at once, mid-write."""
        first = (self.folder / "postmaster.pid").read_text().split()[0]
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *others):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def start_again(self) -> None:
        """After a kill: until the last of its processes is gone it refuses to start."""
        for _ in range(50):
            try:
                self.start()
            except subprocess.CalledProcessError:
                time.sleep(0.1)
            else:
                return
        self.start()

    def call(self, program: str, *arguments: str) -> None:
        found = shutil.which(program) or str(BINARIES[-1] / program)
        subprocess.run(
            [found, *arguments], user=self.owner, check=True, capture_output=True, cwd=self.folder
        )

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1"
        if not self.durable:
            options += " -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
        log = str(self.folder / "log")
        self.call("pg_ctl", "-D", str(self.folder), "-o", options, "-l", log, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self.call("pg_ctl", "-D", str(self.folder), "-m", mode, "-w", "stop")

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://fairhorizon@127.0.0.1:{self.port}/{name}"

    def new_database(self, name: str, like: str = "template1") -> str:
        """like: a database that nobody is connected to, of which it is a copy."""
        engine = sa.create_engine(
            self.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(sa.text(f'CREATE DATABASE "{name}" TEMPLATE "{like}"'))
        engine.dispose()
        return self.url(name)
