"""``python -m agent``: the agent of one node."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import click
from redis.connection import parse_url

from agent.config import (
    DEFAULT_METRICS_BIND,
    DEFAULT_STATE,
    ROOT_STATE,
    AgentConfig,
    read_config,
)
from agent.engines.launch_plan import NodeFacts
from agent.errors import AgentError, BadConfig
from agent.inventory.engines_found import find_engines, package_root
from agent.inventory.node_inventory import NodeInventory
from agent.marks import StateFolder
from agent.metrics import AgentCollector, MetricsServer
from agent.supervise import Supervisor
from agent.task_end import end_tasks
from agent.uplink import Session, Uplink
from agent.weights.told_folders import ToldFolders

log = logging.getLogger("agent")

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SCHEMES = ("redis", "rediss", "unix")


class Settings(NamedTuple):
    """The command line, checked."""

    redis_url: str
    node: str
    cluster: str
    config: AgentConfig
    state: Path
    metrics_host: str
    metrics_port: int
    engines_end: bool


def local_address(redis_url: str) -> str:
    """The local end of a connection to Redis: loopback when Redis is on loopback. Sends nothing."""
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return "127.0.0.1"
    host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(ipaddress.ip_address(str(probe.getsockname()[0])))
    except OSError as error:
        raise BadConfig(
            f"which address engines listen on cannot be told ({host}: {error});"
            " write address: <this node's IP> in agent.yaml"
        ) from None


def check_url(url: str) -> str:
    """The URL of Redis; BadConfig (without the password) where it is none."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in _SCHEMES and (parts.port is None or parts.port > 0)
        parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        fits = False
    if not fits:
        raise BadConfig(
            "--redis is no URL of Redis; write for example redis://:password@host:6379/0"
        )
    return url


def _metrics_bind(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BadConfig(f"--metrics-bind {text!r}: write HOST:PORT, as in {DEFAULT_METRICS_BIND}")
    return host.strip("[]"), int(port)


def _read(path: Path, flag: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise BadConfig(f"{flag} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadConfig(f"{flag} {path} is no text; write it in UTF-8") from None


async def run(settings: Settings, folder: StateFolder) -> None:
    """The agent until SIGTERM or SIGINT."""
    config = settings.config
    session = Session(
        node=settings.node,
        session=secrets.token_hex(8),
        node_id=folder.node_id(secrets.token_hex(16)),
        started_ms=int(time.time() * 1000),
    )
    address = config.address or local_address(settings.redis_url)
    commands = await find_engines(config.llama_server, folder.path / "engines-found.json")
    inventory = NodeInventory(config, session.node_id, address, commands)
    node = NodeFacts(
        address=address,
        simulated=config.simulated is not None,
        commands=commands,
        fabric=config.fabric,
        package_root=package_root(),
        cards=frozenset(card.uuid for card in inventory.cards()),
    )
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), trust_env=False
    ) as http:
        supervisor = Supervisor(folder, config, node, session.node_id, session.node, http)
        told = ToldFolders(config.weights)
        uplink = Uplink(settings.redis_url, settings.cluster, session, supervisor, inventory, told)
        server = MetricsServer(AgentCollector(supervisor, uplink.reach))
        try:
            host = settings.metrics_host
            port = await server.start(host, settings.metrics_port)
            log.info(
                "node %s on %s; metrics on http://%s:%d/metrics", session.node, address, host, port
            )
            await supervisor.adopt()
            await _until_asked(supervisor, uplink, engines_end=settings.engines_end)
        finally:
            await uplink.close()
            await supervisor.close()
            await server.close()
    log.info("ended; engines %s", "ended too" if settings.engines_end else "go on")


async def end_engines(config: AgentConfig, folder: StateFolder) -> None:
    """Ends every engine that an agent of this state folder has left running."""
    node_id = folder.node_id(secrets.token_hex(16))
    node = NodeFacts(address="127.0.0.1", simulated=config.simulated is not None, commands={})
    async with aiohttp.ClientSession(trust_env=False) as http:
        supervisor = Supervisor(folder, config, node, node_id, "", http)
        try:
            await supervisor.adopt()
            await supervisor.end_engines()
        finally:
            await supervisor.close()
    log.info("every engine has ended")


async def _until_asked(supervisor: Supervisor, uplink: Uplink, *, engines_end: bool) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    work = [asyncio.create_task(supervisor.run()), asyncio.create_task(uplink.run())]
    waiting = asyncio.create_task(asked.wait())
    try:
        done, _ = await asyncio.wait([*work, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # neither ends by itself: raises what ended it
        if engines_end:
            await supervisor.end_engines()
    finally:
        await end_tasks((*work, waiting))


@click.command()
@click.option("--redis", "redis_url", help="URL of Redis; better --redis-file or LLMGW_REDIS_URL.")
@click.option("--redis-file", type=click.Path(path_type=Path), help="A file that holds the URL.")
@click.option("--node", default="", help="The name of this node in the cluster; must be given.")
@click.option("--cluster", default="default", show_default=True)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="agent.yaml")
@click.option("--state", type=click.Path(path_type=Path), help="The state folder.")
@click.option("--metrics-bind", default=DEFAULT_METRICS_BIND, show_default=True)
@click.option("--engines-end-with-agent", is_flag=True, help="At a clean end, end the engines too.")
@click.option(
    "--end-engines",
    "only_end_engines",
    is_flag=True,
    help="End the engines that an agent has left running, and end. Needs no Redis and no name.",
)
def command(
    redis_url: str | None,
    redis_file: Path | None,
    node: str,
    cluster: str,
    config_file: Path | None,
    state: Path | None,
    metrics_bind: str,
    engines_end_with_agent: bool,
    only_end_engines: bool,
) -> None:
    """Runs the agent of one node: starts, watches and stops engines as the leader wants."""
    where = (state or (ROOT_STATE if os.geteuid() == 0 else DEFAULT_STATE)).expanduser().absolute()
    text = "" if config_file is None else _read(config_file, "--config")
    config = read_config(text, str(config_file or "agent.yaml"))
    if only_end_engines:
        folder = StateFolder(where)
        with contextlib.closing(folder):
            asyncio.run(end_engines(config, folder))
        return
    if not node:
        raise BadConfig("which node is this? Write --node NAME, for example --node n1")
    if redis_file is not None:
        redis_url = _read(redis_file, "--redis-file").strip()
    redis_url = redis_url or os.environ.get("LLMGW_REDIS_URL", "")
    if not redis_url:
        raise BadConfig(
            "where is Redis? Write --redis-file FILE, --redis URL, or set LLMGW_REDIS_URL"
        )
    for flag, name in (("--node", node), ("--cluster", cluster)):
        if _NAME.fullmatch(name) is None:
            raise BadConfig(f"{flag} {name!r}: write letters, digits, dots, dashes and underscores")
    host, port = _metrics_bind(metrics_bind)
    settings = Settings(
        redis_url=check_url(redis_url),
        node=node,
        cluster=cluster,
        config=config,
        state=where,
        metrics_host=host,
        metrics_port=port,
        engines_end=engines_end_with_agent,
    )
    folder = StateFolder(settings.state)
    with contextlib.closing(folder):
        asyncio.run(run(settings, folder))


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 after a clean end, 2 when something is wrong with how it was called."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    words = None if argv is None else list(argv)
    try:
        command.main(args=words, prog_name="llmgw agent", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (AgentError, OSError) as error:
        print(f"llmgw agent: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
