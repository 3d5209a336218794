"""Who may import whom, and what a core may not touch (architecture: Folders)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.rules.source_tree import PACKAGES, ROOT, begins_with, imports_of, module_name, sources

OURS = ("router", "orchestrator", "agent", "ext", "bench", "tests")

#: package -> what of ours it may import besides itself.
MAY_IMPORT = {
    "ext": (),
    "orchestrator.wire": ("ext",),
    "orchestrator": ("ext",),
    "router": ("orchestrator.wire", "ext"),
    "agent": ("orchestrator.wire", "ext"),
    "bench": ("router", "orchestrator", "agent", "ext"),
}

#: Modules whose rules take values and return values: no I/O, no loop, no clock, no randomness.
CORES = (
    "orchestrator.wire",
    "orchestrator.catalog",
    "orchestrator.placement",
    "orchestrator.reconcile",
    "orchestrator.sharing",
    "router.snapshot",
    "router.resolve",
    "router.refused_members",
    "router.admit",
    "router.choose",
    "router.bookings",
    "router.circuit",
    "router.errors",
    "router.loads",
    "router.presence",
    "router.routes",
    "agent.engines",
    "agent.want_state",
    "agent.shard_states",
    "agent.ports",
    "agent.load_limit",
    "agent.metrics_text",
    "agent.sim_engine.model",
    "agent.sim_engine.prefix_cache",
)
NOT_IN_A_CORE = (
    "asyncio",
    "socket",
    "subprocess",
    "redis",
    "hiredis",
    "aiohttp",
    "uvloop",
    "granian",
    "time",
    "random",
    "secrets",
    "uuid",
    "threading",
    "os",
    "signal",
    "multiprocessing",
)


def package_of(module: str) -> str:
    """The longest key of MAY_IMPORT that holds the module."""
    return max((p for p in MAY_IMPORT if begins_with(module, p)), key=len)


@pytest.mark.parametrize("path", list(sources(*PACKAGES)), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_keep_their_direction(path: Path):
    module = module_name(path)
    own = package_of(module)
    for imported in imports_of(path):
        if not any(begins_with(imported, package) for package in OURS):
            continue
        if begins_with(imported, own):
            continue
        assert any(begins_with(imported, allowed) for allowed in MAY_IMPORT[own]), (
            f"{module} imports {imported}; {own} may import only {MAY_IMPORT[own]}"
        )


@pytest.mark.parametrize("core", CORES)
def test_a_core_does_no_io(core: str):
    checked = [p for p in sources(core.partition(".")[0]) if begins_with(module_name(p), core)]
    assert checked, f"{core} is listed as a core and does not exist"
    for path in checked:
        for imported in imports_of(path):
            assert not any(begins_with(imported, banned) for banned in NOT_IN_A_CORE), (
                f"{module_name(path)} is a core and imports {imported}"
            )


@pytest.mark.parametrize("core", CORES)
def test_a_core_opens_no_file(core: str):
    for path in sources(core.partition(".")[0]):
        if not begins_with(module_name(path), core) or path.suffix == ".pyx":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                assert name not in ("open", "read_text", "read_bytes", "write_text", "print"), (
                    f"{path.name}:{node.lineno} is in a core and calls {name}()"
                )


def test_ext_knows_no_loop():
    for path in sources("ext"):
        assert not any(begins_with(name, "asyncio") for name in imports_of(path)), path
