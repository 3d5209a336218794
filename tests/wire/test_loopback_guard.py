"""Who may talk to a loopback page (R165-R169, FO30)."""

from __future__ import annotations

import pytest

from orchestrator.wire.loopback_guard import is_address_or_localhost, refusal

JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8090",
        "10.1.2.3:80",
        "[::1]:8090",
        "[::1]",
        "localhost",
        "LocalHost:8090",
    ],
)
def test_an_address_or_localhost_passes(host):
    assert is_address_or_localhost(host)
    assert refusal("GET", "/api/status", [("Host", host)]) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8090",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "999.1.1.1",
        "1.2.3",
        "0x7f000001",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[::1",
        "::1",
        "",
        "localhost:",
        "localhost:80x",
        "user@localhost",
        "127.0.0.1:8090:1",
    ],
)
def test_any_other_host_is_misdirected(host):
    if host == "localhost:":
        assert is_address_or_localhost(host) is False
    found = refusal("GET", "/", [("Host", host)])
    assert found is not None
    assert found.status == 421


def test_one_host_exactly():
    assert refusal("GET", "/", []).status == 421
    assert refusal("GET", "/", [("Host", "localhost"), ("host", "localhost")]).status == 421


def test_the_authority_of_an_absolute_target_counts():
    hosts = [("Host", "localhost")]
    assert refusal("GET", "http://localhost/api", hosts) is None
    assert refusal("GET", "http://evil.example/api", hosts).status == 421


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_another_site_is_refused(site):
    assert refusal("GET", "/", [("Host", "localhost"), ("Sec-Fetch-Site", site)]).status == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_own_pages_and_typed_addresses_pass(site):
    assert refusal("GET", "/", [("Host", "localhost"), ("Sec-Fetch-Site", site)]) is None


def test_the_origin_must_be_the_host_itself():
    host = ("Host", "127.0.0.1:8090")
    own = ("Origin", "http://127.0.0.1:8090")
    assert refusal("POST", "/", [host, own, JSON]) is None
    for origin in ("http://evil.example", "https://127.0.0.1:8090", "http://127.0.0.1", "null"):
        assert refusal("POST", "/", [host, ("Origin", origin), JSON]).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_changes_need_json(method):
    host = ("Host", "localhost")
    assert refusal(method, "/", [host]).status == 415
    assert refusal(method, "/", [host, ("Content-Type", "text/plain")]).status == 415
    assert refusal(method, "/", [host, JSON, ("Content-Type", "text/plain")]).status == 415
    assert refusal(method, "/", [host, ("Content-Type", "application/json; charset=utf-8")]) is None


def test_no_cross_origin_grants():
    assert refusal("OPTIONS", "/", [("Host", "localhost")]).status == 405
