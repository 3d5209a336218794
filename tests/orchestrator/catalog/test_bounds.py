"""Numbers and texts that no message can carry are refused where they are written."""

from __future__ import annotations

import pytest

from orchestrator.catalog.build import build, with_added
from orchestrator.errors import CatalogRefused
from orchestrator.publish import Publisher

PROFILE = {"engine": "sim", "min_memory_gb": 1}


def model(key: str, value: object) -> dict[str, object]:
    made: dict[str, object] = {"name": "m", "profiles": [PROFILE]}
    section, dot, inner = key.partition(".")
    if section == "profiles":
        made["profiles"] = [{**PROFILE, inner: value}]
    else:
        made[section] = {inner: value} if dot else value
    return made


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, number)
            for key in (
                "context_length",
                "max_output_tokens",
                "limits.rpm",
                "limits.tpm",
                "limits.concurrency",
                "scaling.max",
                "scaling.headroom",
                "profiles.slots",
                "profiles.cpu_cores",
            )
            for number in (2**64, 10**30, 10**400)
        ),
        *(
            (key, number)
            for key in ("profiles.min_memory_gb", "profiles.disk_gb", "profiles.prefill_rate")
            for number in (1e18, 1e300, float("inf"), float("nan"))
        ),
        ("scaling.idle_timeout", "9" * 400 + "s"),
        ("timeouts.total", float("inf")),
        ("timeouts.first_byte", "99999999h"),
        ("profiles.args", ["a\0b"]),
        ("profiles.env", {"A": "b\0"}),
    ],
)
def test_it_is_refused_when_loaded_and_when_defined(key: str, value: object) -> None:
    for make in (
        lambda: build([model(key, value)], {}),
        lambda: with_added([], {}, model(key, value), 1),
    ):
        with pytest.raises(CatalogRefused) as refused:
            make()
        assert refused.value.place.endswith(key.rpartition(".")[2])


def test_the_largest_that_are_allowed_can_be_published() -> None:
    most = model("context_length", 10**12)
    most["limits"] = {"tpm": 10**12}
    catalog = build([most], {})
    assert Publisher(1).catalog(catalog.entries()) is not None
