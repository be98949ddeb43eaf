"""Knows what a ledger must add up to; does not know sockets."""

import msgpack
import numpy as np

from psboost.wire.arrays import Frames
from psboost.wire.codec import Envelope, encode
from psboost.wire.ledger import Ledger, measure
from psboost.wire.messages import CloseTree


def test_measure_counts_arrays_as_payload_and_zmtp_framing_as_wire():
    assert measure(Frames([b"x" * 10])) == (0, 12)
    assert measure(Frames([b"x" * 255])) == (0, 257)
    assert measure(Frames([b"x" * 256])) == (0, 265)
    frames = Frames([b"x" * 10, memoryview(b"y" * 1000), b""])
    frames.payload = 1004
    assert measure(frames) == (1004, 12 + 1009 + 2)


def test_an_empty_ledger():
    ledger = Ledger()
    assert ledger.total() == ledger.by_tree() == ledger.by_receiver() == {}
    assert ledger.bytes_sent == 0


def test_counts_by_kind_and_tree():
    ledger = Ledger()
    ledger.count("Join", -1, 0, 40, "coordinator")
    ledger.count("PushHistograms", 0, 100, 150, "server 0")
    ledger.count("PushHistograms", 0, 200, 250, "server 1")
    ledger.count("PushHistograms", 1, 1, 2, "server 0")
    assert ledger.bytes_sent == 442
    assert ledger.total() == {
        "Join": {"messages": 1, "payload": 0, "wire": 40},
        "PushHistograms": {"messages": 3, "payload": 301, "wire": 402},
    }
    assert ledger.by_tree()[0] == {"PushHistograms": {"messages": 2, "payload": 300, "wire": 400}}
    assert list(ledger.by_tree()) == [-1, 0, 1]
    assert ledger.by_receiver() == {
        "coordinator": {"messages": 1, "payload": 0, "wire": 40},
        "server 0": {"messages": 2, "payload": 101, "wire": 152},
        "server 1": {"messages": 1, "payload": 200, "wire": 250},
    }


def test_state_survives_a_message_and_merges():
    ledger = Ledger()
    ledger.count("Join", -1, 0, 40, "coordinator")
    ledger.count("Beat", 12, 3, 5, "worker 0,0")
    copy = Ledger.from_state(msgpack.unpackb(msgpack.packb(ledger.state())))
    assert copy.by_tree() == ledger.by_tree() and copy.by_receiver() == ledger.by_receiver()
    copy.merge(ledger)
    assert copy.bytes_sent == 2 * ledger.bytes_sent == 90
    assert copy.total()["Beat"] == copy.by_receiver()["worker 0,0"] == {"messages": 2, "payload": 6, "wire": 10}
    assert ledger.bytes_sent == 45


def test_owed_messages_are_counted_when_somebody_asks():
    """In whatever way; and when a later tree's come."""
    messages = [CloseTree(tree=tree, values=np.zeros(n, np.float32)) for tree, n in ((0, 4), (0, 5000), (1, 3))]
    envelopes = [Envelope(run=1 << 30, sender="coordinator", sequence=i) for i in range(3)]
    expected = Ledger()
    for envelope, message in zip(envelopes, messages, strict=True):
        expected.count("CloseTree", message.tree, *measure(encode(envelope, message)), "worker 0,0")

    def owing():
        ledger = Ledger()
        for envelope, message in zip(envelopes, messages, strict=True):
            ledger.owe(envelope, message, "worker 0,0")
        return ledger

    assert owing().bytes_sent == expected.bytes_sent > 20_000
    assert owing().total() == expected.total() and owing().by_tree() == expected.by_tree()
    assert owing().by_receiver() == expected.by_receiver() and owing().state() == expected.state()
    merged, renamed = Ledger(), owing()
    merged.merge(owing())
    assert merged.state() == expected.state()
    renamed.rename_receiver("worker 0,0", "worker 1,0")
    assert renamed.by_receiver() == {"worker 1,0": expected.by_receiver()["worker 0,0"]}
