from __future__ import annotations

from orchestrator.publish import Publisher, endpoints_write
from orchestrator.wire.feed import SnapshotNotice, read_feed
from orchestrator.wire.snapshots import (
    EndpointsSnapshot,
    KeyEntry,
    ModelEntry,
    read_access,
    read_catalog,
    read_endpoints,
)


def test_a_snapshot_is_numbered_when_it_was_written_and_skipped_when_the_same() -> None:
    publisher = Publisher(7)
    first = publisher.catalog([ModelEntry("a")])
    again = publisher.catalog([ModelEntry("a")])
    assert first is not None
    assert again is not None, "what was not written is prepared again"
    assert first.write.version == again.write.version == 1
    publisher.written(first)
    assert publisher.catalog([ModelEntry("a")]) is None
    second = publisher.catalog([ModelEntry("b")])
    assert second is not None
    snapshot = read_catalog(second.write.payload)
    assert (snapshot.epoch, snapshot.version, snapshot.models) == (7, 2, [ModelEntry("b")])
    assert read_feed(second.write.notice) == SnapshotNotice("catalog", 7, 2)


def test_keys_in_another_order_are_the_same_access() -> None:
    publisher = Publisher(7)
    a, b = KeyEntry("1", "a"), KeyEntry("2", "b")
    first = publisher.access({"x": a, "y": b}, {})
    assert first is not None
    publisher.written(first)
    assert publisher.access({"y": b, "x": a}, {}) is None
    assert read_access(first.write.payload).keys == {"x": a, "y": b}


def test_endpoints_keep_the_number_that_the_reconciler_gave() -> None:
    write = endpoints_write(EndpointsSnapshot(7, 12, [], []))
    assert (write.name, write.version) == ("endpoints", 12)
    assert read_endpoints(write.payload).version == 12
    assert read_feed(write.notice) == SnapshotNotice("endpoints", 7, 12)
