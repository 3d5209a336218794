"""agent.yaml and the command line: read whole, or an error that says what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.__main__ import check_url, local_address, main
from agent.config import AgentConfig, Limits, SimulatedCards, read_config
from agent.errors import BadConfig
from orchestrator.wire.reports import Fabric

WHOLE = """
address: 10.0.0.7
fabric: {name: ib0, address: 10.1.0.7, interface: ib0}
labels: {rack: r1}
weights: [/data/weights]
cache: /var/lib/llmgw/cache
simulated: {gpus: 8, class: H100-80GB, memory_gb: 80}
llama_server: [/opt/llama-server, --log-colors]
ports: {first: 21000, last: 21999}
limits: {load_stall: 10m, scrape: 500ms}
"""


def test_a_whole_file():
    assert read_config(WHOLE) == AgentConfig(
        address="10.0.0.7",
        fabric=Fabric("ib0", "10.1.0.7", "ib0"),
        labels={"rack": "r1"},
        weights=("/data/weights",),
        cache="/var/lib/llmgw/cache",
        simulated=SimulatedCards(8, "H100-80GB", 80.0),
        llama_server=("/opt/llama-server", "--log-colors"),
        ports=read_config("ports: {first: 21000, last: 21999}").ports,
        limits=Limits(load_stall=600.0, scrape=0.5),
    )


def test_an_empty_file_is_the_defaults():
    assert read_config("") == read_config("\n") == AgentConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adress: 1", "adress"),
        ("address: node7", "no IP address"),
        ("weights: [data]", "beginning with /"),
        ("cache: x", "beginning with /"),
        ("simulated: {gpus: 0, class: x}", "gpus of 1 or more"),
        ("simulated: {gpus: 1}", "class"),
        ("ports: {first: 80, last: 90}", "between 1024 and 65535"),
        ("ports: {first: 2000, last: 2005}", "at least 10 ports"),
        ("limits: {patience: 5m}", "limits.patience is unknown"),
        ("limits: {load_stall: soon}", "write for example"),
        ("limits: {load_stall: 0}", "write for example"),
        ("fabric: {name: '', address: 10.0.0.1}", "fabric.name is empty"),
        ("fabric: {name: ib0}", "address"),
        ("labels: [a]", "labels"),
        ("a: [", "agent.yaml"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str):
    with pytest.raises(BadConfig) as caught:
        read_config(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:6379/0", "127.0.0.1"),
        ("redis://:secret@localhost:7000", "127.0.0.1"),
        ("unix:///run/redis.sock", "127.0.0.1"),
    ],
)
def test_loopback_when_redis_is_on_loopback(url: str, address: str):
    assert local_address(url) in (address, "::1")


@pytest.mark.parametrize(
    "url", ["http://x", "127.0.0.1:6379", "redis://x:port", "redis://x?db=y", ""]
)
def test_what_is_no_url_is_refused_without_showing_it(url: str):
    with pytest.raises(BadConfig) as caught:
        check_url(url)
    assert "redis://" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--node"),
        (["--node", "n1"], "where is Redis"),
        (["--node", "n 1", "--redis", "redis://x"], "letters, digits"),
        (["--node", "n1", "--redis", "nonsense"], "no URL of Redis"),
        (["--node", "n1", "--redis", "redis://x", "--metrics-bind", "9110"], "HOST:PORT"),
        (["--node", "n1", "--redis", "redis://x", "--config", "/none.yaml"], "/none.yaml"),
        (["--node", "n1", "--redis-file", "/none"], "/none"),
    ],
)
def test_a_wrong_command_line(
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    monkeypatch.delenv("LLMGW_REDIS_URL", raising=False)
    assert main([*words, "--state", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
