"""Which of the fitting nodes, which cards, and all ranks or none."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.placement.inventory import CardView, Inventory, Need, NodeView
from orchestrator.placement.place import Placement, Rejections, place
from orchestrator.placement.reasons import GB
from orchestrator.wire.profile import Profile

H100 = "H100-80GB"


def gpu_node(name: str, cards: int = 8, held: int = 0, **more) -> NodeView:
    return NodeView(
        name,
        cards=tuple(
            CardView(f"{name}-{n}", H100, 80 * GB, 0, held_by="other" if n < held else None)
            for n in range(cards)
        ),
        **{"engines": frozenset({"sim"}), "simulated": True, **more},
    )


def cpu_node(name: str, shards: int = 0, **more) -> NodeView:
    return NodeView(name, shards=shards, **{"engines": frozenset({"sim"}), **more})


def place_sim(nodes, /, **profile) -> Placement | Rejections:
    return place(Need("m", Profile(engine="sim", **profile), {}), Inventory(nodes), "r1")


def nodes_of(found: Placement | Rejections) -> list[str]:
    assert isinstance(found, Placement)
    return [booking.node for booking in found.bookings]


def test_gpu_replicas_are_packed_and_cpu_replicas_spread():
    """R42."""
    assert nodes_of(place_sim([gpu_node("a"), gpu_node("b", held=6)], gpu=H100)) == ["b"]
    assert nodes_of(place_sim([cpu_node("a", 2), cpu_node("b", 1)])) == ["b"]


def test_ties_go_by_name():
    assert nodes_of(place_sim([gpu_node("b"), gpu_node("a")], gpu=H100)) == ["a"]


def test_a_node_that_holds_the_weights_is_preferred_and_no_other_refused():
    """R40, R41."""
    holder = gpu_node("z", holds=frozenset({"hf:o/r"}))
    wanted = {"gpu": H100, "source": "hf:o/r"}
    assert nodes_of(place_sim([gpu_node("a", held=7), holder], **wanted)) == ["z"]
    full = gpu_node("z", held=8, holds=frozenset({"hf:o/r"}))
    assert nodes_of(place_sim([gpu_node("a"), full], **wanted)) == ["a"]
    assert nodes_of(
        place_sim([gpu_node("a", holds=frozenset({"hf:x/y"})), gpu_node("b")], **wanted)
    ) == ["a"]


def test_the_count_of_cards_is_the_profiles():
    """R31."""
    found = place_sim([gpu_node("a", held=2)], gpu=H100, gpus_per_node=3)
    assert isinstance(found, Placement)
    assert found.bookings[0].cards == ("a-2", "a-3", "a-4")
    assert found.bookings[0].replica == "r1"


def test_what_is_booked_is_what_the_profile_asks_for():
    found = place_sim([cpu_node("a")], cpu_cores=4, min_memory_gb=8, disk_gb=2.5)
    assert isinstance(found, Placement)
    booking = found.bookings[0]
    assert (booking.cores, booking.memory, booking.disk) == (4, 8 * GB, 25 * GB // 10)


def test_no_disk_is_booked_where_the_weights_lie():
    found = place_sim([cpu_node("a", holds=frozenset({"hf:o/r"}))], disk_gb=2, source="hf:o/r")
    assert isinstance(found, Placement)
    assert found.bookings[0].disk == 0


def big(nodes):
    return place_sim(nodes, gpu=H100, tp=8, nodes=2)


def test_a_replica_over_two_nodes_lies_in_one_fabric():
    """R32."""
    nodes = [gpu_node(name, 4, fabric=f"ib-{name[0]}") for name in ("a1", "b1", "b2")]
    found = big(nodes)
    assert nodes_of(found) == ["b1", "b2"]
    assert isinstance(found, Placement)
    assert found.fabric == "ib-b"
    assert [len(booking.cards) for booking in found.bookings] == [4, 4]


def test_all_ranks_or_none_with_the_fabric_as_the_reason():
    nodes = [gpu_node("a", 4, fabric="ib-a"), gpu_node("b", 4, fabric="ib-b")]
    found = big(nodes)
    assert isinstance(found, Rejections)
    reasons = [reason for verdict in found.verdicts for reason in verdict.reasons]
    assert [(reason.kind, reason.has) for reason in reasons] == [
        ("fabric", "1 in ib-a"),
        ("fabric", "1 in ib-b"),
    ]


def test_the_fabric_that_holds_the_weights_is_preferred_then_the_smaller_one():
    def four(prefix: str, count: int, **more):
        return [gpu_node(f"{prefix}{n}", 4, fabric=prefix, **more) for n in range(count)]

    assert nodes_of(big([*four("a", 3), *four("b", 2)])) == ["b0", "b1"]
    held = frozenset({"hf:o/r"})
    found = place_sim(
        [*four("a", 2), *four("b", 3, holds=held)], gpu=H100, tp=8, nodes=2, source="hf:o/r"
    )
    assert nodes_of(found) == ["b0", "b1"]


profiles = st.one_of(
    st.builds(lambda n: Profile(engine="sim", gpu=H100, gpus_per_node=n, tp=n), st.integers(1, 8)),
    st.just(Profile(engine="sim", gpu=H100, tp=8, nodes=2)),
    st.builds(
        lambda c, m: Profile(engine="sim", cpu_cores=c, min_memory_gb=m),
        st.integers(1, 8),
        st.integers(1, 32),
    ),
)
clusters = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from([None, "ib-a", "ib-b"]), st.booleans()),
    min_size=1,
    max_size=5,
)


@given(clusters, st.lists(profiles, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_placed_one_after_another_nothing_is_given_twice(cluster, wanted):
    """R30, FO08."""
    inventory = Inventory(
        gpu_node(f"n{i}", cards, fabric=fabric, drained=drained, cores=16, memory=64 * GB)
        for i, (cards, fabric, drained) in enumerate(cluster)
    )
    held: set[str] = set()
    for number, profile in enumerate(wanted):
        found = place(Need("m", profile, {}), inventory, f"r{number}")
        if isinstance(found, Rejections):
            assert all(verdict.reasons for verdict in found.verdicts)
            continue
        assert len(found.bookings) == profile.world_size
        assert len({booking.node for booking in found.bookings}) == profile.world_size
        for booking in found.bookings:
            assert not inventory.nodes[booking.node].drained
            assert not held & set(booking.cards)
            held |= set(booking.cards)
        if profile.world_size > 1:
            assert len({inventory.nodes[one.node].fabric for one in found.bookings}) == 1
        inventory = inventory.less(found.bookings)
    for node in inventory.nodes.values():
        assert node.cores_booked <= 16
        assert node.memory_booked <= 64 * GB
