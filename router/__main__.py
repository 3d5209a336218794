"""``llmgw router``: options to config, then the parent's life."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from router.config import (
    BODIES_HELD_CAP,
    BODY_CAP,
    BODY_TIME_S,
    DEFAULT_BIND,
    DEFAULT_CLUSTER,
    DEFAULT_METRICS_BIND,
    GRACE_S,
    GRANIAN,
    HTTPTOOLS,
    MIB,
    STOP_LIMIT_S,
    BadOption,
    RouterConfig,
    check_redis_url,
    checked,
    parse_bind,
    read_redis_file,
)
from router.run_dir import held_run_dir
from router.workers import RouterProcesses

_CORES = len(os.sched_getaffinity(0))


@click.command(name="router")
@click.option("--config", "static_file", metavar="FILE", help="Static endpoints (YAML).")
@click.option(
    "--redis",
    "redis_url",
    metavar="URL",
    envvar="LLMGW_REDIS_URL",
    help="The store; with a password rather give LLMGW_REDIS_URL or --redis-file.",
)
@click.option(
    "--redis-file", metavar="FILE", help="A file of mode 0600 that holds the store's URL."
)
@click.option("--cluster", default=DEFAULT_CLUSTER, show_default=True, metavar="NAME")
@click.option("--bind", default=DEFAULT_BIND, show_default=True, metavar="HOST:PORT")
@click.option("--workers", default=_CORES, show_default="CPU cores", metavar="N")
@click.option(
    "--metrics-bind", default=DEFAULT_METRICS_BIND, show_default=True, metavar="HOST:PORT"
)
@click.option("--run", "run_dir", metavar="DIR", help="Folder of this start (default: a new one).")
@click.option(
    "--front",
    type=click.Choice((HTTPTOOLS, GRANIAN)),
    help=f"What speaks HTTP to clients (default: {HTTPTOOLS}; {GRANIAN} with --http2).",
)
@click.option("--http2", is_flag=True, help="HTTP/2 without TLS besides HTTP/1.1.")
@click.option(
    "--grace",
    default=GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="After the first signal requests are still served, and readiness is gone, for this long.",
)
@click.option(
    "--stop-limit",
    default=STOP_LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Then what runs may run on for this long.",
)
@click.option("--body-cap", default=BODY_CAP // MIB, show_default=True, metavar="MIB")
@click.option("--bodies-held", default=BODIES_HELD_CAP // MIB, show_default=True, metavar="MIB")
@click.option("--body-time", default=BODY_TIME_S, show_default=True, metavar="SECONDS")
@click.option("--access-log", metavar="FILE", help="JSON lines; - is standard output.")
@click.option("--port-file", metavar="FILE", help="Where the bound ports are written when ready.")
@click.option("--application", hidden=True, default="router.application:Application")
def router(
    static_file: str | None,
    redis_url: str | None,
    redis_file: str | None,
    cluster: str,
    bind: str,
    workers: int,
    metrics_bind: str,
    run_dir: str | None,
    front: str | None,
    http2: bool,
    grace: float,
    stop_limit: float,
    body_cap: int,
    bodies_held: int,
    body_time: float,
    access_log: str | None,
    port_file: str | None,
    application: str,
) -> None:
    """Serve the OpenAI API in front of engines."""
    try:
        if redis_file is not None:
            redis_url = read_redis_file(redis_file)
        elif redis_url is not None:
            redis_url = check_redis_url("--redis", redis_url)
        bind_host, bind_port = parse_bind("--bind", bind)
        metrics_host, metrics_port = parse_bind("--metrics-bind", metrics_bind)
        with held_run_dir(run_dir, os.environ.get("XDG_RUNTIME_DIR")) as held:
            config = RouterConfig(
                static_file=os.path.abspath(static_file) if static_file else None,
                redis_url=redis_url,
                cluster=cluster,
                bind_host=bind_host,
                bind_port=bind_port,
                workers=workers,
                metrics_host=metrics_host,
                metrics_port=metrics_port,
                run_dir=held,
                front=front or (GRANIAN if http2 else HTTPTOOLS),
                http2=http2,
                grace=grace,
                stop_limit=stop_limit,
                body_cap=body_cap * MIB,
                bodies_held_cap=bodies_held * MIB,
                body_time=body_time,
                access_log=access_log,
                application=application,
            )
            status = asyncio.run(RouterProcesses(checked(config), port_file).run())
    except BadOption as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)


def main(argv: list[str] | None = None) -> None:
    """Run with ``argv`` (default: the process's own); ends by SystemExit."""
    router.main(args=argv, prog_name="llmgw router")


if __name__ == "__main__":
    main()
