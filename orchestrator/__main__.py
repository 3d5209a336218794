"""``llmgw orchestrator``: the command line, the environment, signals, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import platform
import re
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from orchestrator.admin.listener import AdminListener
from orchestrator.backup import write_private
from orchestrator.cluster_file import FileOnDisk
from orchestrator.config import (
    DEFAULT_ADMIN_BIND,
    DEFAULT_CLUSTER,
    DEFAULT_STATE,
    Settings,
    parse_admin_bind,
    parse_redis_url,
)
from orchestrator.errors import CatalogRefused
from orchestrator.instance import Instance, read_and_check
from orchestrator.run_together import end_all
from orchestrator.shell_errors import SettingsRefused

log = logging.getLogger("llmgw.orchestrator")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@contextlib.contextmanager
def held_state(folder: Path) -> Iterator[str]:
    """Holds the state folder for this process and yields the instance's name, which is kept in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise SettingsRefused(f"--state {folder} cannot be used: {error}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsRefused(
                f"another orchestrator runs with --state {folder};"
                " end it, or give this one a folder of its own"
            ) from None
        yield _instance_name(folder)


def _instance_name(folder: Path) -> str:
    path = folder / "instance"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        name = path.read_text().strip()
        if name:
            return name
    host = re.sub(r"[^A-Za-z0-9.-]", "-", platform.node()) or "orchestrator"
    name = f"{host}-{secrets.token_hex(3)}"
    write_private(path, name.encode())
    return name


async def _serve(settings: Settings, name: str) -> None:
    on_disk = FileOnDisk(settings.cluster_file)
    instance = Instance(settings, name, on_disk, read_and_check(on_disk))
    listener = AdminListener(instance, settings.port_file)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    reload_asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGHUP, reload_asked.set)
    port = await listener.open(settings.admin_host, settings.admin_port)
    log.info("%s: admin API at http://%s:%d", name, settings.admin_host, port)
    work = asyncio.ensure_future(instance.run())
    reloading = asyncio.ensure_future(_reload_when_asked(instance, reload_asked))
    waiting = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait([work, reloading, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_all([work, reloading, waiting])
        await listener.close()
    for task in (work, reloading):
        if not task.cancelled():
            task.result()
    log.info("%s: ended; engines and routers go on", name)


async def _reload_when_asked(instance: Instance, asked: asyncio.Event) -> None:
    while True:
        await asked.wait()
        asked.clear()
        await instance.reload_quietly()


@click.command(context_settings={"show_default": True})
@click.option("--redis", "redis_url", help="Redis URL; a password in it is visible to ps.")
@click.option(
    "--redis-file",
    type=click.Path(path_type=Path),
    help="A 0600 file with the Redis URL; else LLMGW_REDIS_URL is used.",
)
@click.option(
    "--config", "cluster_file", type=click.Path(path_type=Path), help="The cluster.yaml to declare."
)
@click.option("--cluster", default=DEFAULT_CLUSTER, help="Name of the cluster in Redis.")
@click.option("--admin-bind", default=DEFAULT_ADMIN_BIND, help="Loopback address of the admin API.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=DEFAULT_STATE,
    help="Folder for backup.json and this instance's name.",
)
@click.option(
    "--port-file",
    type=click.Path(path_type=Path),
    help="Written as JSON once the admin API answers.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info")
def command(
    redis_url: str | None,
    redis_file: Path | None,
    cluster_file: Path | None,
    cluster: str,
    admin_bind: str,
    state: Path,
    port_file: Path | None,
    log_level: str,
) -> None:
    """Decides which model runs on which node: one leads, any number stand by."""
    logging.basicConfig(
        level=log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # It logs a traceback for every malformed request; faults of ours are logged by the admin API.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    try:
        host, port = parse_admin_bind(admin_bind)
        if _CLUSTER.fullmatch(cluster) is None:
            raise SettingsRefused(
                f"--cluster {cluster!r} is no name; write letters, digits, dots and dashes"
            )
        settings = Settings(
            redis_url=parse_redis_url(redis_url, redis_file, os.environ.get("LLMGW_REDIS_URL")),
            state=state.expanduser(),
            cluster=cluster,
            cluster_file=cluster_file,
            admin_host=host,
            admin_port=port,
            port_file=port_file,
        )
        with held_state(settings.state) as name:
            asyncio.run(_serve(settings, name))
    except (SettingsRefused, CatalogRefused) as error:
        click.echo(f"error: the orchestrator does not start\n  {error}", err=True)
        raise SystemExit(2) from None


def main(argv: list[str] | None = None) -> None:
    """Entry of ``llmgw orchestrator``."""
    command.main(args=argv, prog_name="llmgw orchestrator")


if __name__ == "__main__":
    main()
