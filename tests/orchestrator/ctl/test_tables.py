from __future__ import annotations

import pytest
from rich.text import Text

from orchestrator.ctl import columns, figures
from orchestrator.ctl.columns import Listing
from orchestrator.ctl.status_text import status_lines
from orchestrator.ctl.table import Column, lines
from tests.orchestrator.ctl.a_cluster import MODELS, NODES, REPLICAS, STATUS


def plain(made: list[Text]) -> list[str]:
    return [line.plain for line in made]


def table(listing: Listing, items: list[dict[str, object]], width: int | None) -> list[str]:
    shown = [column for column in listing.columns if not column.wide]
    rows = [[column.cell(item) for column in shown] for item in items]
    return plain(lines([column.column for column in shown], rows, width))


def test_blanks_between_columns_and_numbers_to_the_right() -> None:
    made = plain(
        lines([Column("NAME"), Column("N", right=True)], [["a", "5"], ["long", "100"]], None)
    )
    assert made == ["NAME    N", "a       5", "long  100"]


def test_a_cell_of_several_lines_is_one_line() -> None:
    assert plain(lines([Column("A")], [["x\n  y"]], None)) == ["A", "x y"]


def test_nothing_is_cut_where_nobody_looks() -> None:
    assert plain(lines([Column("NOTE")], [["x" * 500]], None))[1] == "x" * 500


def test_the_note_is_cut_first_then_spare_columns_go_then_the_widest_gives_way() -> None:
    head = [Column("NAME"), Column("MIDDLE"), Column("SPARE", spare=1), Column("NOTE")]
    row = ["n" * 20, "m" * 20, "s" * 20, "o" * 60]
    assert [len(cell) for cell in plain(lines(head, [row], 100))[1].split()] == [20, 20, 20, 34]
    assert [len(cell) for cell in plain(lines(head, [row], 70))[1].split()] == [20, 20, 26]
    assert [len(cell) for cell in plain(lines(head, [row], 44))[1].split()] == [20, 14, 6]
    narrow = plain(lines(head, [row], 30))[1].split()
    assert [len(cell) for cell in narrow] == [14, 6, 6]
    assert narrow[0].endswith("…")


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    ("listing", "items"),
    [(columns.NODES, NODES), (columns.MODELS, MODELS), (columns.REPLICAS, REPLICAS)],
)
def test_no_row_is_wider_than_the_terminal_and_names_stay_whole(
    listing: Listing, items: list[dict[str, object]], width: int
) -> None:
    made = table(listing, items, width)
    assert max(map(len, made)) <= width
    for item, line in zip(items, made[1:], strict=True):
        assert line.startswith(str(item[listing.name]))


def test_unknown_is_a_dash_and_never_0() -> None:
    head, *_, old = table(columns.NODES, NODES, None)
    cells = dict(zip(head.split(), old.split(), strict=False))
    assert (cells["SEEN"], cells["FABRIC"], cells["CPU"], cells["MEM"]) == ("-", "-", "0/-", "-")
    assert cells["CARDS"] == "0", "a node that has none said so"
    tiny = table(columns.MODELS, MODELS, None)[-1].split()
    assert tiny[2:8] == ["0/0", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (45.9, "45s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (90000, "1d"),
        (-3, "0s"),
    ],
)
def test_ages(seconds: float | None, text: str) -> None:
    assert figures.age(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "-"),
        (0, "0G"),
        (3 * 10**8, "0.3G"),
        (61 * 10**8, "6.1G"),
        (512 * 10**9, "512G"),
        (10**12, "1.0T"),
    ],
)
def test_sizes(amount: float | None, text: str) -> None:
    assert figures.size(amount) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0"), (61, "61"), (2100, "2.1k"), (61_200_000, "61.2M")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert figures.number(value) == text


def test_keys_without_a_list_may_use_all_and_with_an_empty_one_none() -> None:
    made = table(
        columns.KEYS,
        [{"name": "a"}, {"name": "b", "models": []}, {"name": "c", "models": ["m"]}],
        None,
    )
    shown = [line.split()[3] for line in made[1:]]
    assert shown == ["all", "-", "m"]


def test_status_is_short_and_says_problems_first() -> None:
    made = plain(status_lines(STATUS, 100))
    assert len(made) <= 25
    assert max(map(len, made)) <= 100
    assert made[0].startswith("cluster acme   leader orch-1 (4d)   routers 2   store ok")
    assert made[1] == "needs attention: 1 problem, 1 warning"
    assert made[3].startswith("x  coder-14b"), "a problem comes before a warning"
    assert "explain coder-14b" in made[3]
    names = [line.split()[0] for line in made if line.split()[:1] and line.split()[0] != "NAME"]
    assert names[-3:] == ["coder-14b", "qwen3-8b", "tiny"], "worst first"


def test_a_healthy_cluster_says_so() -> None:
    made = plain(status_lines({**STATUS, "problems": []}, 100))
    assert made[1] == "nothing needs attention"


def test_many_problems_and_models_are_counted() -> None:
    many = {
        **STATUS,
        "problems": STATUS["problems"] * 10,
        "models": [{**MODELS[1], "name": f"m{number}"} for number in range(30)],
    }
    made = plain(status_lines(many, 100))
    assert len(made) <= 25
    assert "+ 15 more" in made
    assert "+ 22 more: models" in made


def test_status_without_a_leader_and_without_a_store() -> None:
    away = {
        "cluster": "acme",
        "role": "standby",
        "instance": "orch-2",
        "store": {"ok": False, "away_s": 12.0, "problem": "refused"},
        "problems": [
            {"tone": "red", "subject": "store", "what": "away", "why": "refused", "verb": ""}
        ],
    }
    made = plain(status_lines(away, 100))
    assert "leader none" in made[0]
    assert "store away 12s" in made[0]
    assert "seen by standby orch-2" in made[0]
