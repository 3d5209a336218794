"""Rules of the house that a machine can hold: names, lengths, what the project does not speak of."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.rules.source_tree import PACKAGES, ROOT, sources

MOST_LINES = 600
EMPTY_NAMES = ("utils", "util", "helpers", "helper", "common", "manager", "misc")
LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


@pytest.mark.parametrize("path", list(sources(*PACKAGES)), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_holds_one_thing(path: Path):
    assert path.stem not in EMPTY_NAMES
    lines = path.read_text().splitlines()
    most = 2 * MOST_LINES if path.suffix == ".pyx" else MOST_LINES
    assert len(lines) <= most, f"{len(lines)} lines; split it"
    for number, line in enumerate(lines, 1):
        assert not LEFT_OVER.search(line), f"line {number} says that something is left to do"


@pytest.mark.parametrize("path", list(sources(*PACKAGES)), ids=lambda p: str(p.relative_to(ROOT)))
def test_types_are_late(path: Path):
    text = path.read_text().strip()
    if path.suffix == ".py" and "import" in text and path.name != "__init__.py":
        assert "from __future__ import annotations" in text


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout: the list of the project's files is git's")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_path_of_one_machine():
    own = re.compile(r"(?<![\w.])/(work|root|home/\w+)/")
    for path in tracked():
        if path.suffix in (".py", ".pyx", ".md", ".toml", ".yaml", ".yml", "") and path.is_file():
            for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1):
                assert not own.search(line) or path == Path(__file__), f"{path}:{number}: {line}"


def test_dependencies_are_pinned():
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
    wanted = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    assert wanted
    for one in [*wanted, *project["build-system"]["requires"]]:
        assert re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+", one), f"{one} is not pinned"
