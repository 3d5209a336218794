"""The shim's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import BadConfig
from agent.llama_flags import ALL_LAYERS, FLAGS, help_text, read_flags
from agent.llama_server import main, parameters


def test_every_name_is_one_flags_and_in_the_help():
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names))
    for name in names:
        assert name in help_text()


def test_what_the_adapter_passes(tmp_path: Path):
    key = tmp_path / "key"
    key.write_text("sesame\n")
    given = read_flags(
        [
            *("-m", "/m.gguf", "--alias", "a,b", "--host", "127.0.0.1", "--port", "81"),
            *("-np", "4", "-c", "8192", "-ngl", "all", "--metrics", "--fit", "off", "--offline"),
            *("--no-kv-unified", "--jinja", "--no-webui", "-t", "3", "-tb", "2"),
            *("--lora", "/x", "--lora", "/y", "--lora-init-without-apply", "-sm", "layer"),
            *("--api-key-file", str(key)),
        ]
    )
    assert given["model_alias"] == ["a", "b"]
    assert given["n_gpu_layers"] == ALL_LAYERS
    assert given["lora"] == ["/x", "/y"]
    assert given["api_keys"] == ["sesame"]
    assert given["fit_params"] is False
    assert given["ui"] is False


def test_the_last_value_wins_and_both_spellings_are_one():
    assert read_flags(["-m", "/m", "--ctx-size", "1", "-c=2"])["n_ctx"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "/m", "--warp"], "--warp: this llama-server"),
        (["-m", "/m", "-c"], "-c needs a value"),
        (["-m", "/m", "-c", "many"], "-c many: write a whole number"),
        (["-m", "/m", "--fit", "yes"], "--fit yes: write one of off, on"),
        (["-m", "/m", "--metrics=1"], "--metrics takes no value"),
        (["--port", "1"], "-m FILE is missing"),
        (["-m", "/m", "--api-key-file", "/none/key"], "/none/key"),
    ],
)
def test_what_does_not_fit_is_said(words: list[str], said: str):
    with pytest.raises(BadConfig) as caught:
        read_flags(words)
    assert said in str(caught.value)


def test_settings_reach_the_wheel(tmp_path: Path):
    pytest.importorskip("xllamacpp")
    words = "-m /m.gguf -a x --port 81 -np 2 -c 4096 -t 3 --fit off -fa on --lora /x --no-mmap -s 5"
    wheel = parameters(read_flags(words.split()))
    assert wheel.model.path == "/m.gguf"
    assert wheel.model_alias == {"x"}
    assert (wheel.port, wheel.n_parallel, wheel.n_ctx) == (81, 2, 4096)
    assert (wheel.cpuparams.n_threads, wheel.cpuparams_batch.n_threads) == (3, 3)
    assert wheel.fit_params is False
    assert wheel.sampling.seed == 5
    assert [adapter.path for adapter in wheel.lora_adapters] == ["/x"]


def test_help_version_and_a_wrong_flag(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    assert "--no-webui" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("version: xllamacpp")
    assert main(["--warp"]) == 2
    assert "--warp" in capsys.readouterr().err
