"""The arithmetic between raw rounds and targets, and how contestants are started."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench import contestants, peers
from bench.contestants import Launch, all_contestants
from bench.report import Verdict
from bench.router_overhead import Kind, Measured, choose, medians, table, targets
from bench.wrk_load import LoadSummary


def load(requests, duration_us=2_000_000):
    return LoadSummary(requests, duration_us, 1500, 4000, 0, 0, 0, 0, 0)


def plain(contestant, number, cpu_us, requests=1000):
    return Measured(contestant, number, Kind.PLAIN, load(requests), requests, 0, cpu_us, {})


def stream(contestant, number, cpu_us, chunks):
    return Measured(contestant, number, Kind.STREAM, load(10), 12, chunks, cpu_us, {})


def test_figures_are_medians_over_rounds():
    rounds = [plain("a", number, cpu_us) for number, cpu_us in enumerate((50e3, 90e3, 40e3), 1)]
    figures = medians(rounds)
    assert figures == {
        "a": {
            "requests_per_s": 500.0,
            "p50_ms": 1.5,
            "p99_ms": 4.0,
            "cpu_us_per_request": 50.0,
        }
    }


def test_chunk_cost_is_over_the_chunks_that_the_engine_sent():
    figures = medians([stream("a", 1, 20e3, chunks=1000)])
    assert figures == {"a": {"chunks_per_s": 500.0, "cpu_us_per_chunk": 20.0}}


def test_no_process_has_no_cpu_figure():
    figures = medians([plain("direct", 1, None), stream("direct", 1, None, chunks=10)])
    assert set(figures["direct"]) == {"requests_per_s", "p50_ms", "p99_ms", "chunks_per_s"}
    assert table(figures).splitlines()[1].split()[:2] == ["direct", "-"]


def rounds_with(request, chunk, slowness=(1.0,), leave_out=()):
    """Rounds in which everybody is slower by the same factor; µs per request and per chunk of ours."""
    costs = {
        contestants.LLMGW: (request, chunk),
        contestants.SGLANG_CACHE_AWARE: (80.0, 1.0),
        contestants.VLLM_ROUND_ROBIN: (50.0, 20.0),
    }
    return [
        measured
        for number, factor in enumerate(slowness, 1)
        for name, (per_request, per_chunk) in costs.items()
        if name not in leave_out
        for measured in (
            plain(name, number, per_request * factor * 1000),
            stream(name, number, per_chunk * factor * 1000, chunks=1000),
        )
    ]


@pytest.mark.parametrize(
    ("request_us", "chunk_us", "missed"),
    [
        (48.0, 22.0, []),
        (48.1, 22.0, [0]),
        (50.1, 22.0, [0, 1]),
        (40.0, 22.1, [2]),
    ],
)
def test_targets_at_their_limits(request_us, chunk_us, missed):
    found = targets(rounds_with(request_us, chunk_us))
    verdicts = [target.verdict for target in found]
    assert [number for number, one in enumerate(verdicts) if one is Verdict.MISSED] == missed
    assert Verdict.UNMEASURED not in verdicts


def test_a_round_is_compared_with_itself():
    """A machine that is slow for a while is slow for all: ratios are taken within a round."""
    steady = [target.figure for target in targets(rounds_with(45.0, 20.0))]
    shaken = [target.figure for target in targets(rounds_with(45.0, 20.0, (1.0, 3.0, 1.7)))]
    assert shaken == pytest.approx(steady)


def test_targets_without_us_or_the_peer_are_unmeasured():
    rounds = rounds_with(40.0, 20.0, leave_out=(contestants.VLLM_ROUND_ROBIN,))
    verdicts = [target.verdict for target in targets(rounds)]
    assert verdicts == [Verdict.MET, Verdict.UNMEASURED, Verdict.UNMEASURED]
    rounds = rounds_with(40.0, 20.0, leave_out=(contestants.LLMGW,))
    assert {target.verdict for target in targets(rounds)} == {Verdict.UNMEASURED}


def test_choosing_keeps_the_order_and_names_what_is_unknown():
    chosen = choose(f"{contestants.DIRECT}, {contestants.LLMGW}")
    assert [one.name for one in chosen] == [contestants.LLMGW, contestants.DIRECT]
    assert [one.name for one in choose(None)] == [one.name for one in all_contestants()]
    with pytest.raises(ValueError, match="no contestant 'nginx'; there are: direct, llmgw"):
        choose("nginx")


def command_of(name, folder: Path) -> list[str]:
    launch = Launch(8001, 8002, ("http://127.0.0.1:9001",), folder)
    (found,) = (one for one in all_contestants() if one.name == name)
    assert found.command is not None
    return found.command(launch)


def test_our_router_is_started_with_one_worker_and_the_engine(tmp_path):
    command = command_of(contestants.LLMGW, tmp_path)
    assert command[1:3] == ["-m", "router"]
    assert command[command.index("--workers") + 1] == "1"
    assert command[command.index("--bind") + 1] == "127.0.0.1:8001"
    config = yaml.safe_load(Path(command[command.index("--config") + 1]).read_text())
    assert config["models"] == [{"name": "tiny", "endpoints": [{"url": "http://127.0.0.1:9001"}]}]


@pytest.mark.parametrize(
    "name",
    [
        contestants.SGLANG_CACHE_AWARE,
        contestants.SGLANG_ROUND_ROBIN,
        contestants.VLLM_CACHE_AWARE,
        contestants.VLLM_ROUND_ROBIN,
    ],
)
def test_peers_are_started_from_their_own_environment(name, tmp_path):
    package, policy = name.split()
    command = command_of(name, tmp_path)
    assert command[0] == str(peers.ENVIRONMENT / "bin" / "python")
    assert command[2] == package.replace("-", "_") + ".launch_router"
    assert command[command.index("--policy") + 1] == policy
    assert command[command.index("--port") + 1] == "8001"
    assert command[command.index("--worker-urls") + 1 :] == ["http://127.0.0.1:9001"]


def test_only_what_has_another_version_is_installed(tmp_path):
    assert peers.wrong_versions(dict(peers.VERSIONS)) == []
    assert peers.wrong_versions({peers.SGLANG_ROUTER: "0.3.1"}) == [
        f"{name}=={version}" for name, version in peers.VERSIONS.items()
    ]
    assert peers.installed_versions(tmp_path) == {}


def test_installed_versions_are_read_from_the_environment(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    for name, version in ((peers.VLLM_ROUTER, "0.1.17"), ("something-else", "3")):
        info = tmp_path / "lib/python3.11/site-packages" / f"{name.replace('-', '_')}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    assert peers.installed_versions(tmp_path) == {peers.VLLM_ROUTER: "0.1.17"}
