from __future__ import annotations

import hashlib
import json

import pytest

from router.errors import StaticFileError
from router.static_file import check_open_access, load_static_file, parse_static_text

DIGEST = hashlib.sha256(b"sk-1").hexdigest()
FULL = f"""
models:
  - name: chat
    description: The usual one.
    aliases: [gpt, claude-chat]
    context_length: 8192
    capabilities: [tools]
    max_output_tokens: 1024
    timeouts: {{first_byte: 90s, total: 2m}}
    endpoints:
      - url: http://127.0.0.1:8001/
        slots: 8
        engine: llamacpp
        served_name: file.gguf
        engine_key: k
        context: 4096
        prefill_rate: 250
        adapters: {{poet: 2}}
      - {{url: "http://[::1]:8002", id: second}}
keys:
  - {{name: a, sha256: "{DIGEST}", models: [chat]}}
  - {{name: b, key_file: b.key, operator: true}}
"""


def parse(text, folder="."):
    return parse_static_text(text, folder=str(folder))


def test_everything(tmp_path):
    (tmp_path / "b.key").write_text("sk-2\n")
    (tmp_path / "b.key").chmod(0o600)
    (tmp_path / "router.yaml").write_text(FULL)
    catalog, endpoints, access = load_static_file(str(tmp_path / "router.yaml"))
    entry = catalog.models[0]
    assert (entry.name, entry.aliases, entry.context_length) == (
        "chat",
        ["gpt", "claude-chat"],
        8192,
    )
    assert (entry.timeouts.first_byte, entry.timeouts.idle, entry.timeouts.total) == (90, 120, 120)
    assert [adapter.name for adapter in entry.adapters] == ["poet"]
    first, second = endpoints.endpoints
    assert (first.id, first.url) == ("chat@127.0.0.1:8001", "http://127.0.0.1:8001")
    assert (first.served_name, first.slots, first.context, first.adapters) == (
        "file.gguf", 8, 4096, {"poet": 2},
    )  # fmt: skip
    assert (second.id, second.url, second.served_name) == ("second", "http://[::1]:8002", "chat")
    assert access.keys[DIGEST].models == ["chat"]
    assert access.keys[hashlib.sha256(b"sk-2").hexdigest()].operator


MODEL = "models: [{name: m, endpoints: [{url: 'http://h:1'}]%s}]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [", "not YAML"),
        ("[]", "the file: Expected `object`"),
        ("models: []", "models: the list is empty"),
        ("modles: []", "modles"),
        (MODEL % ", contxt: 5", "models[0]: Object contains unknown field `contxt`"),
        (MODEL % ", name: n", "the key 'name' is there twice"),
        ("models: [{name: m, endpoints: []}]", "models[0].endpoints: is empty"),
        ("models: [{name: '', endpoints: [{url: 'http://h:1'}]}]", "models[0].name: is empty"),
        ("models: [{name: m, endpoints: [{url: 7}]}]", "models[0].endpoints[0].url: Expected `str`"),
        ("models: [{name: m, endpoints: [{url: 'h:1'}]}]", "is not http://HOST:PORT"),
        ("models: [{name: m, endpoints: [{url: 'https://h:1'}]}]", "is not http://HOST:PORT"),
        ("models: [{name: m, endpoints: [{url: 'http://h:x'}]}]", "is not http://HOST:PORT"),
        ("models: [{name: m, endpoints: [{url: 'http://h:1/v1'}]}]", "write http://h:1 "),
        ("models: [{name: m, endpoints: [{url: 'http://h:1', slots: 0}]}]", "endpoints[0].slots: 0"),
        ("models: [{name: m, endpoints: [{url: 'http://h:1'}, {url: 'http://h:1'}]}]", "listed twice"),
        (MODEL % ", aliases: [m]", "the name 'm' is wanted by"),
        (MODEL % ", context_length: 0", "context_length: 0 is not at least 1"),
        (MODEL % ", timeouts: {idle: soon}", "models[0].timeouts.idle: 'soon' is not a duration"),
        (MODEL % ", timeouts: {idle: 0}", "timeouts.idle: is 0"),
        (MODEL % "" + "\nkeys: [{name: a}]", "keys[0]: needs either sha256"),
        (MODEL % "" + "\nkeys: [{name: a, sha256: sk-plain}]", "keys[0].sha256: is not 64"),
        (MODEL % "" + "\nkeys: [{name: a, key_file: none}]", "keys[0].key_file: cannot be read"),
    ],
)  # fmt: skip
def test_refusals_name_the_place(text, words):
    with pytest.raises(StaticFileError) as refused:
        parse(text)
    assert words in str(refused.value)
    assert "sk-plain" not in str(refused.value)


def test_a_key_file_that_others_may_read(tmp_path):
    (tmp_path / "k").write_text("sk")
    (tmp_path / "k").chmod(0o644)
    with pytest.raises(StaticFileError, match="chmod 600"):
        parse(MODEL % "" + "\nkeys: [{name: a, key_file: k}]", tmp_path)


def test_the_same_key_twice():
    keys = f"\nkeys: [{{name: a, sha256: '{DIGEST}'}}, {{name: b, sha256: '{DIGEST}'}}]"
    with pytest.raises(StaticFileError, match=r"keys\[1\]: the same key as 'a'"):
        parse(MODEL % "" + keys)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_without_keys_loopback_is_open(host):
    check_open_access(parse(MODEL % ""), host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu1"])
def test_without_keys_nothing_else_is(host):
    with pytest.raises(StaticFileError, match="is not loopback"):
        check_open_access(parse(MODEL % ""), host)
    check_open_access(parse(MODEL % "" + f"\nkeys: [{{name: a, sha256: '{DIGEST}'}}]"), host)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StaticFileError, match=r"none\.yaml: cannot be read"):
        load_static_file(str(tmp_path / "none.yaml"))


def test_a_character_in_two_escapes_is_one(tmp_path):
    text = json.dumps({"models": [{"name": "\U0001f600", "endpoints": [{"url": "http://h:1"}]}]})
    assert "\\ud83d\\ude00" in text
    snapshots = parse_static_text(text, folder=str(tmp_path))
    assert [model.name for model in snapshots.catalog.models] == ["\U0001f600"]
    with pytest.raises(StaticFileError, match="half of a character"):
        parse_static_text(text.replace("\\ude00", ""), folder=str(tmp_path))
