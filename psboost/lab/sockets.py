"""Measures what sockets and the kernel take for a message between two processes; knows endpoints, not roles.

    python -m psboost.lab.sockets                               both ends on this machine
    python -m psboost.lab.sockets --listen tcp://HOST:PORT      on one machine, and on another:
    python -m psboost.lab.sockets --to tcp://HOST:PORT --host ITS_OWN_ADDRESS

prints {"message_us", "byte_ns", "round_trip_us"}: microseconds of CPU for a message and nanoseconds for a byte of it, at
each end (the mean of sender and receiver), and of the clock for a small message to the other end and back. The first two
are hosts.Cluster's. CPU time is that of all threads, with what they do in the kernel, and what the kernel does for the
network in interrupts, on the cores that the two processes may use: nothing else should use the network meanwhile.

Messages go to and fro one at a time, as in a training, so that each wakes up a process that waits; and as in a training
each end goes through memory in between, so that the message finds caches full of other things. The time of that, and that of
encoding and decoding, which the virtual cluster measures itself, is taken off.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from psboost.errors import ClusterError
from psboost.wire.codec import Envelope, decode, encode
from psboost.wire.endpoint import Endpoint
from psboost.wire.kinds import Message
from psboost.wire.ledger import Ledger
from psboost.wire.messages import Beat, Join, PushLeafSums, StopTraining

N_SMALL, N_LARGE = 300, 20
LARGE = 1 << 22  # bytes
PATIENCE_SECONDS = 60.0
_SMALL = PushLeafSums(sums=np.zeros((8, 2), np.int64))
_OTHER_THINGS = 1 << 25  # bytes: about what the caches hold


class _Spent:
    """The CPU seconds that this process, and the kernel for it, have spent on messages so far."""

    def __init__(self) -> None:
        self._memory, self._apart = np.zeros(_OTHER_THINGS // 8), 0.0
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def do_other_things(self) -> None:
        begin = time.thread_time()
        self._memory += 1
        self._apart += time.thread_time() - begin

    def now(self) -> dict[str, float]:
        """Seconds by who spent them: this process, and interrupts on each core, which two processes may share."""
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        tick = 1 / os.sysconf("SC_CLK_TCK")
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        interrupts = {f"{self._boot} {line[0]}": int(line[7]) * tick for line in lines if line[0] in cores}
        return interrupts | {f"process {self._boot} {os.getpid()}": time.process_time() - self._apart}


def answer(address: str) -> None:
    """Listens at `address`, prints where that is, and answers each message with the CPU seconds spent so far."""
    with Endpoint("far", address, run=1, ledger=Ledger()) as endpoint:
        print(endpoint.address, flush=True)
        spent = _Spent()
        while True:
            message = _receive(endpoint)
            if isinstance(message, StopTraining):
                return
            if isinstance(message, Join):
                endpoint.connect("near", message.address)
            endpoint.send("near", Beat(seconds=spent.now() if isinstance(message, Beat | Join) else {}))
            spent.do_other_things()


def measure(far: str, near: str = "tcp://127.0.0.1:0") -> dict[str, float]:
    """What sockets take between here and an `answer` that listens at `far`; `near`: where to listen for its answers."""
    with Endpoint("near", near, run=1, ledger=Ledger()) as endpoint:
        endpoint.connect("far", far)
        spent = _Spent()

        def spent_so_far() -> float:
            endpoint.send("far", Beat(seconds={}))
            return sum((_receive(endpoint).seconds | spent.now()).values())

        def exchange(message: Message, n: int) -> tuple[float, float]:
            """CPU seconds at both ends, and the median seconds of the clock, of one exchange."""
            walls = []
            for i in range(-10, n):  # some to warm up
                if i == 0:
                    first = spent_so_far()
                began = time.perf_counter()
                endpoint.send("far", message)
                _receive(endpoint)
                walls.append(time.perf_counter() - began)
                spent.do_other_things()
            return (spent_so_far() - first) / n, statistics.median(walls)

        endpoint.send("far", Join(role="near", address=endpoint.address))
        _receive(endpoint)
        small, round_trip = exchange(_SMALL, N_SMALL)
        large_message = PushLeafSums(sums=np.zeros((LARGE // 16, 2), np.int64))
        large, _ = exchange(large_message, N_LARGE)
        endpoint.send("far", StopTraining())
        endpoint.close(linger=1.0)
    answer_codec = _codec_seconds(Beat(seconds={}))
    small -= _codec_seconds(_SMALL) + answer_codec
    large -= _codec_seconds(large_message) + answer_codec
    return {
        "message_us": 1e6 * small / 4,  # two messages, two ends
        "byte_ns": 1e9 * (large - small) / (2 * LARGE),
        "round_trip_us": 1e6 * round_trip,
    }


def measure_here() -> dict[str, float]:
    """What sockets take between two processes of this machine."""
    command = [sys.executable, "-P", "-m", "psboost.lab.sockets", "--listen", "tcp://127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as far:
        try:
            return measure(far.stdout.readline().strip())
        except BaseException:
            far.kill()
            raise


def _receive(endpoint: Endpoint) -> Message:
    received = endpoint.receive(PATIENCE_SECONDS)
    if received is None:
        raise ClusterError(f"{endpoint.name}: the other end has said nothing for {PATIENCE_SECONDS:.0f} s")
    return received[1]


def _codec_seconds(message: Message) -> float:
    """CPU seconds to encode and decode a message."""
    n, begin = 500, time.thread_time()
    for i in range(n):
        decode(encode(Envelope(1, "near", i), message))
    return (time.thread_time() - begin) / n


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m psboost.lab.sockets", description=__doc__.splitlines()[0])
    parser.add_argument("--listen", metavar="ADDRESS", help="answer here")
    parser.add_argument("--to", metavar="ADDRESS", help="where another process answers")
    parser.add_argument("--host", default="127.0.0.1", help="of this end, with --to")
    arguments = parser.parse_args()
    if arguments.listen:
        answer(arguments.listen)
    else:
        of = measure(arguments.to, f"tcp://{arguments.host}:0") if arguments.to else measure_here()
        print(json.dumps({name: round(value, 3) for name, value in of.items()}), flush=True)


if __name__ == "__main__":
    main()
