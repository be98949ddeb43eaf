"""Knows what a virtual cluster is made of and which role is on which host; does not know time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psboost.errors import ParameterError
from psboost.settings import Bool, Float, Int, check_all, define

if TYPE_CHECKING:  # the command line needs this file before it needs numpy
    from psboost.roles.job import Grid


@dataclass(frozen=True)
class Cluster:
    """Hosts that are all alike, each on a switch by a full-duplex link of its own.

    Workers are dealt to the hosts in turn, and so are servers: beside them, or with `servers_apart` each to one of the last
    hosts, which then have no workers. What a role computes takes the CPU time that it takes here, times `slowdown`.

    Sockets and the kernel are not run: each message costs the sender and the receiver `message_us` and `byte_ns` a byte of
    CPU time each, its encoding and decoding apart. The defaults are what `python -m psboost.lab.sockets` measured between
    two processes of one machine (2 cores, AMD EPYC, Linux 6.18, over tcp); it measures another machine's too.

    hosts_per_core  for comparing with namespaces on a machine of few cores: so many hosts share one core
    burst_kb        for the same: what a link that was idle takes at once, as theirs do

    Raises ParameterError for values out of range.
    """

    SETTING = "setting of the virtual cluster"

    hosts: int | None = define(
        None, Int(1, 2**16), "hosts of the virtual cluster", optional="one for each worker, and for each server apart"
    )
    host_cores: int = define(1, Int(1, 2**10), "cores of each host")
    gbit: float | None = define(
        1.0, Float(0, open=True), "Gbit/s of each host's link, each way; auto: no limit", optional="no limit"
    )
    goodput: float = define(
        0.94, Float(0, 1, open=True), "the share of a link that headers of Ethernet, IP and TCP leave to messages"
    )
    latency_ms: float = define(0.1, Float(0), "milliseconds from host to host")
    servers_apart: bool = define(False, Bool(), "servers have hosts of their own")
    coordinator_host: int = define(0, Int(0, 2**16), "the host of the coordinator")
    slowdown: float = define(1.0, Float(0, open=True), "how many times the CPU time of this machine the hosts need")
    message_us: float = define(200.0, Float(0), "microseconds of CPU that sockets take for a message, at each end")
    byte_ns: float = define(0.7, Float(0), "nanoseconds of CPU that sockets take for a byte, at each end")
    hosts_per_core: int = define(1, Int(1, 2**16), "hosts that share one core")
    burst_kb: float = define(0.0, Float(0), "kB that a link which was idle takes at once")

    def __post_init__(self) -> None:
        check_all(self, "")
        if self.hosts_per_core > 1 and self.host_cores > 1:
            raise ParameterError(
                f"hosts_per_core {self.hosts_per_core} and host_cores {self.host_cores}: hosts that share a core have one"
            )

    def place(self, grid: Grid) -> dict[str, int]:
        """The host of each role: {name: number}. ParameterError if there are too few hosts."""
        n_apart = len(grid.servers) if self.servers_apart else 0
        hosts = self.hosts or len(grid.workers) + n_apart
        for_workers = hosts - n_apart
        if for_workers < 1:
            raise ParameterError(
                f"hosts {hosts}: with servers apart, {n_apart} servers and the workers need at least {n_apart + 1} hosts"
            )
        if self.coordinator_host >= hosts:
            raise ParameterError(f"coordinator_host {self.coordinator_host}: there are only hosts 0 to {hosts - 1}")
        placed = {"coordinator": self.coordinator_host}
        for i, server in enumerate(grid.servers):
            placed[server] = for_workers + i if self.servers_apart else i % hosts
        for i, worker in enumerate(grid.workers):
            placed[worker] = i % for_workers
        return placed

    def core_of(self, host: int) -> int:
        """Which cores a host has: hosts of the same number share theirs."""
        return host // self.hosts_per_core
