"""Knows which cores this process may use, and whether threads of it may go before others; does not know what for."""

import math
import os
import resource
import threading
from functools import cache
from pathlib import Path

_CONTROL_GROUP = Path("/sys/fs/cgroup")  # as a process in a container sees its own


def n_cores() -> int:
    """At least 1; no more than the scheduler lets this process use, where it says, nor than its container may use."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(there, _quota()))


def _quota() -> int:
    """How many cores' time a control group may use, rounded up; as many as there are if it may use all."""
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):  # versions 2 and 1
        try:
            quota, period = " ".join((_CONTROL_GROUP / file).read_text() for file in files).split()
        except OSError:
            continue
        if quota not in ("max", "-1"):
            return math.ceil(int(quota) / int(period))
    return os.cpu_count() or 1


@cache
def may_have_urgent_threads() -> bool:
    """Whether threads of this process may run under SCHED_RR, before all that do not: as root or with CAP_SYS_NICE, or with
    RLIMIT_RTPRIO, on Linux. Not where such a thread would end the process once it ran for long (RLIMIT_RTTIME), nor in a
    process that was started to go before others, or to let them go first (chrt, nice)."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    if resource.getrlimit(resource.RLIMIT_RTTIME)[0] != resource.RLIM_INFINITY:
        return False
    if os.sched_getscheduler(0) != os.SCHED_OTHER or os.nice(0) > 0:
        return False
    allowed: list[bool] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except OSError:
            return
        allowed.append(True)

    asking = threading.Thread(target=ask)  # of the thread that calls it, which ends
    asking.start()
    asking.join()
    return bool(allowed)
