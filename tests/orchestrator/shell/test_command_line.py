from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from orchestrator.command_line import SUBCOMMANDS, run


def test_help_lists_every_subcommand_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, command in SUBCOMMANDS.items():
        assert any(line.split()[:1] == [name] and command.help in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_nothing_said_is_help_and_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "SUBCOMMAND" in capsys.readouterr().out


def test_a_near_miss_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ruoter"]) == 2
    assert "llmgw router" in capsys.readouterr().err


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (3, 3)])
def test_a_subcommand_gets_the_rest_and_gives_its_code(
    monkeypatch: pytest.MonkeyPatch, returned: int | None, code: int
) -> None:
    seen: list[list[str]] = []

    def main(argv: list[str]) -> int | None:
        seen.append(argv)
        return returned

    loaded: list[str] = []

    def load(name: str) -> SimpleNamespace:
        loaded.append(name)
        return SimpleNamespace(main=main)

    monkeypatch.setattr("importlib.import_module", load)
    assert run(["sim", "--port", "0"]) == code
    assert (loaded, seen) == (["agent.sim_engine.__main__"], [["--port", "0"]])


def test_help_loads_no_subcommand() -> None:
    code = (
        "import sys; from orchestrator.command_line import run; run(['--help']);"
        "print([m for m in ('aiohttp', 'redis', 'granian', 'click') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.splitlines()[-1] == "[]"
