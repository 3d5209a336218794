"""`python -m agent.sim_engine`: reads the flags and runs one simulated engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click
import msgspec
import uvloop

from agent.sim_engine import settings as defaults
from agent.sim_engine.engine_server import EngineServer, run_worker
from agent.sim_engine.errors import BadSetting, RefusedJoin
from agent.sim_engine.faults import USAGES, read_faults
from agent.sim_engine.model import EngineShape
from agent.sim_engine.process_end import ProcessEnd
from agent.sim_engine.settings import Settings, World, check_settings, read_address


def _announce(said: dict[str, object]) -> None:
    """One JSON line on stdout for whoever started the engine."""
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


async def _run(settings: Settings) -> int:
    end = ProcessEnd(settings.faults)
    world = settings.world
    if world is not None and world.rank > 0:
        return await run_worker(settings, world, end, _announce)
    return await EngineServer(settings, end).run(_announce)


def _world(
    size: int, rank: int | None, master: str | None, on_loss: Literal["hang", "exit"]
) -> World | None:
    if size == 1 and rank in (None, 0):
        return None
    if rank is None or master is None:
        raise BadSetting(f"--world-size {size}: give --rank and --master HOST:PORT too")
    return World(size=size, rank=rank, master=read_address(master), on_loss=on_loss)


def _key(key: str | None, file: Path | None) -> str | None:
    if file is None:
        return key
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise BadSetting(f"--api-key-file: {wrong}") from None


@click.command(context_settings={"show_default": True})
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=8000, type=click.IntRange(0, 65535), help="0: choose a free one.")
@click.option(
    "--served-model-name",
    "names",
    multiple=True,
    default=[defaults.DEFAULT_NAME],
    help="Repeatable, or with commas; the first names the metrics.",
)
@click.option("--slots", default=defaults.DEFAULT_SLOTS, help="Requests that run at once.")
@click.option(
    "--prefill-rate",
    default=defaults.DEFAULT_PREFILL_RATE,
    help="Prompt tokens/s, one prompt at a time; 0: no time.",
)
@click.option(
    "--decode-rate",
    default=defaults.DEFAULT_DECODE_RATE,
    help="Tokens/s of each request; 0: no time.",
)
@click.option("--cache-tokens", default=defaults.DEFAULT_CACHE_TOKENS, help="Size of the cache.")
@click.option("--block-tokens", default=defaults.DEFAULT_BLOCK_TOKENS, help="Tokens per block.")
@click.option(
    "--max-model-len", default=defaults.DEFAULT_MAX_MODEL_LEN, help="Prompt and answer together."
)
@click.option("--embedding-size", default=defaults.DEFAULT_EMBEDDING_SIZE, help="Dimensions.")
@click.option("--no-tools", is_flag=True, help="Answer requests with tools by text, not by a call.")
@click.option(
    "--api-key", envvar="LLMGW_SIM_API_KEY", show_default=False, help="Key that clients must send."
)
@click.option("--api-key-file", type=click.Path(path_type=Path), help="File with the key.")
@click.option("--start-delay", default=0.0, help="Seconds of loading before it is ready.")
@click.option("--keep-alive", default=defaults.DEFAULT_KEEP_ALIVE, help="Seconds of idleness.")
@click.option("--grace", default=defaults.DEFAULT_GRACE, help="Seconds for answers on SIGTERM.")
@click.option("--world-size", default=1, type=click.IntRange(1, 4096), help="Ranks that must meet.")
@click.option("--rank", type=int, help="This one's rank; only rank 0 has HTTP.")
@click.option("--master", metavar="HOST:PORT", help="Where rank 0 listens for the others.")
@click.option(
    "--on-rank-loss",
    type=click.Choice(["hang", "exit"]),
    default="hang",
    help="What the others do when a rank is lost.",
)
@click.option("--fault", "faults", multiple=True, help=f"Repeatable: {USAGES}.")
@click.option("--log-requests", is_flag=True, help="One line on stderr per request.")
def _command(
    host: str,
    port: int,
    names: tuple[str, ...],
    slots: int,
    prefill_rate: float,
    decode_rate: float,
    cache_tokens: int,
    block_tokens: int,
    max_model_len: int,
    embedding_size: int,
    no_tools: bool,
    api_key: str | None,
    api_key_file: Path | None,
    start_delay: float,
    keep_alive: float,
    grace: float,
    world_size: int,
    rank: int | None,
    master: str | None,
    on_rank_loss: Literal["hang", "exit"],
    faults: tuple[str, ...],
    log_requests: bool,
) -> None:
    """A simulated engine: a real HTTP server that answers in Greek letters at a fixed rate."""
    try:
        settings = Settings(
            host=host,
            port=port,
            names=tuple(name.strip() for text in names for name in text.split(",")),
            shape=EngineShape(
                slots=slots,
                prefill_rate=prefill_rate,
                decode_rate=decode_rate,
                cache_tokens=cache_tokens,
                block_tokens=block_tokens,
            ),
            max_model_len=max_model_len,
            embedding_size=embedding_size,
            tools=not no_tools,
            api_key=_key(api_key, api_key_file),
            start_delay=start_delay,
            keep_alive=keep_alive,
            grace=grace,
            world=_world(world_size, rank, master, on_rank_loss),
            faults=read_faults(faults),
            log_requests=log_requests,
        )
        check_settings(settings)
        code = uvloop.run(_run(settings))
    except BadSetting as wrong:
        raise click.UsageError(str(wrong)) from None
    except RefusedJoin as no:
        raise click.ClickException(f"rank 0 refused this rank: {no}") from None
    except OSError as wrong:
        raise click.ClickException(f"cannot listen: {wrong}") from None
    sys.exit(code)


def main(argv: list[str] | None = None) -> None:
    """Runs one engine until it is told to end; leaves by SystemExit with its exit code."""
    _command.main(args=argv, prog_name="llmgw sim")


if __name__ == "__main__":
    main()
