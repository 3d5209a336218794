"""Options: what is taken, and what a refusal says."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from router.__main__ import router
from router.config import BadOption, RouterConfig, checked, parse_bind, read_redis_file
from router.config import worker_identity as identity
from router.run_dir import held_run_dir

SECRET = "redis://:word@127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        (":9000", ("127.0.0.1", 9000)),
        ("gateway:80", ("gateway", 80)),
    ],
)
def test_binds(text, bind):
    assert parse_bind("--bind", text) == bind


@pytest.mark.parametrize("text", ["8080", "host:", "host:x", "host:65536", "::1:80", "host:-1"])
def test_binds_that_are_refused(text):
    with pytest.raises(BadOption, match=r"^--bind: .*write"):
        parse_bind("--bind", text)


def test_redis_file(tmp_path):
    path = tmp_path / "redis"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    assert read_redis_file(str(path)) == SECRET
    path.chmod(0o640)
    with pytest.raises(BadOption, match="chmod 600"):
        read_redis_file(str(path))


def test_redis_file_that_is_missing_or_holds_something_else(tmp_path):
    with pytest.raises(BadOption, match="cannot read"):
        read_redis_file(str(tmp_path / "none"))
    path = tmp_path / "redis"
    path.write_text("word")
    path.chmod(0o600)
    with pytest.raises(BadOption) as caught:
        read_redis_file(str(path))
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "the router needs endpoints"),
        ({"redis_url": SECRET, "workers": 0}, "--workers"),
        ({"redis_url": SECRET, "cluster": "a{b}"}, "--cluster"),
        ({"redis_url": SECRET, "grace": -1.0}, "--grace"),
        ({"redis_url": SECRET, "front": "nginx"}, "neither httptools nor granian"),
        ({"redis_url": SECRET, "http2": True}, "speaks HTTP/1.1 alone; write --front granian"),
    ],
)
def test_configs_that_are_refused(change, said):
    with pytest.raises(BadOption, match=said):
        checked(RouterConfig(run_dir="/x", **change))


def test_a_refused_option_ends_the_command_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.delenv("LLMGW_REDIS_URL", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ended = CliRunner().invoke(router, [])
    assert ended.exit_code == 1
    assert "the router needs endpoints" in ended.output
    ended = CliRunner().invoke(router, [], env={"LLMGW_REDIS_URL": "word"})
    assert ended.exit_code == 1
    assert "not a Redis url" in ended.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "front"),
    [
        ([], "httptools"),
        (["--http2"], "granian"),
        (["--front", "granian"], "granian"),
        (["--http2", "--front", "granian"], "granian"),
        (["--http2", "--front", "httptools"], "refused"),
    ],
)
def test_fronts(tmp_path, monkeypatch, options, front):
    chosen = []

    def refuse(config):
        chosen.append(checked(config).front)
        raise BadOption("far enough")

    monkeypatch.setattr("router.__main__.checked", refuse)
    ended = CliRunner().invoke(router, ["--config", "x", "--run", str(tmp_path / "r"), *options])
    assert chosen == ([] if front == "refused" else [front])
    assert ("write --front granian" in ended.output) == (front == "refused")


def test_a_worker_has_a_new_identity_each_life():
    one, two = identity(3), identity(3)
    assert one.index == two.index == 3
    assert one.id != two.id


def test_run_folders(tmp_path):
    with held_run_dir(None, str(tmp_path)) as folder:
        assert folder.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    own = tmp_path / "run"
    with held_run_dir(str(own), None):
        (own / "metrics" / "0-1").write_bytes(b"")
        with pytest.raises(BadOption, match="another router"), held_run_dir(str(own), None):
            pass
        assert (own / "metrics" / "0-1").exists()
    with held_run_dir(str(own), None):
        assert list((own / "metrics").iterdir()) == []


def test_a_run_folder_that_others_can_read_is_refused(tmp_path):
    own = tmp_path / "run"
    own.mkdir(mode=0o755)
    own.chmod(0o755)
    with pytest.raises(BadOption, match="chmod 700"), held_run_dir(str(own), None):
        pass
