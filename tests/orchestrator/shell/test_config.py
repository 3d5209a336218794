from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import parse_admin_bind, parse_redis_url
from orchestrator.shell_errors import SettingsRefused


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        ("127.0.0.1:8090", "127.0.0.1", 8090),
        ("localhost:0", "127.0.0.1", 0),
        ("[::1]:8090", "::1", 8090),
        ("127.5.5.5:1", "127.5.5.5", 1),
    ],
)
def test_a_loopback_address_is_taken(written: str, host: str, port: int) -> None:
    assert parse_admin_bind(written) == (host, port)


@pytest.mark.parametrize("written", ["0.0.0.0:8090", "[::]:8090", "10.0.0.1:8090", "host:8090"])
def test_another_address_is_refused_with_the_way_in(written: str) -> None:
    with pytest.raises(SettingsRefused, match=r"ssh -L 8090:127\.0\.0\.1:8090"):
        parse_admin_bind(written)


@pytest.mark.parametrize("written", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ""])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(SettingsRefused):
        parse_admin_bind(written)


def test_where_the_redis_url_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("redis://:secret@host/0\n")
    file.chmod(0o600)
    assert parse_redis_url(None, file, "redis://other") == "redis://:secret@host/0"
    assert parse_redis_url("redis://here", None, "redis://other") == "redis://here"
    assert parse_redis_url(None, None, "rediss://other") == "rediss://other"


def test_a_file_with_a_password_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("redis://:secret@host/0\n")
    file.chmod(0o644)
    with pytest.raises(SettingsRefused, match="chmod 600"):
        parse_redis_url(None, file, None)


@pytest.mark.parametrize("url", [None, "", "http://host", "host:6379"])
def test_no_usable_url_is_refused_without_repeating_it(url: str | None) -> None:
    with pytest.raises(SettingsRefused, match="redis://"):
        parse_redis_url(None, None, url)


def test_two_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="one of them"):
        parse_redis_url("redis://a", tmp_path / "url", None)
