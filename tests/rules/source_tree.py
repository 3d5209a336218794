"""The project's own Python files and what each imports, read without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("router", "orchestrator", "agent", "ext", "bench")


def module_name(path: Path) -> str:
    """``router/choose.py`` -> ``router.choose``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(*packages: str) -> Iterator[Path]:
    """Every .py and .pyx of the packages; a bench's own environment is no source of ours."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py*")):
            inside = path.relative_to(ROOT).parts
            if path.suffix in (".py", ".pyx") and ".venv" not in inside:
                yield path


def imports_of(path: Path) -> set[str]:
    """Every module that the file names in an import statement, wherever it stands."""
    if path.suffix == ".pyx":
        found = set()
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] in ("import", "from", "cimport"):
                found.add(words[1].rstrip(","))
        return found
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f"{path}: relative import; write the whole name")
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def begins_with(module: str, package: str) -> bool:
    """Whether ``module`` is the package or lies in it."""
    return module == package or module.startswith(package + ".")
