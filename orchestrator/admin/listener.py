"""The listening socket of the admin API, and the port file by which others find it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from aiohttp import web

from orchestrator.admin.app import admin_app
from orchestrator.backup import write_private
from orchestrator.instance import Instance
from orchestrator.shell_errors import SettingsRefused


class AdminListener:
    """Listens until `close`."""

    def __init__(self, instance: Instance, port_file: Path | None) -> None:
        self._instance = instance
        self._port_file = port_file
        self._runner = web.AppRunner(admin_app(instance), access_log=None)

    async def open(self, host: str, port: int) -> int:
        """Begins to listen; the port (drawn when 0 was asked for)."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, reuse_address=True).start()
        except OSError as error:
            await self._runner.cleanup()
            raise SettingsRefused(
                f"the admin listener cannot use {host}:{port} ({error.strerror or error});"
                " end what uses it, or give another --admin-bind"
            ) from None
        bound: int = self._runner.addresses[0][1]
        if self._port_file is not None:
            shown = f"[{host}]" if ":" in host else host
            content = {
                "port": bound,
                "url": f"http://{shown}:{bound}",
                "instance": self._instance.name,
                "pid": os.getpid(),
            }
            write_private(self._port_file, json.dumps(content).encode())
        return bound

    async def close(self) -> None:
        """Ends it; answers that run have a moment to end."""
        await self._runner.cleanup()
