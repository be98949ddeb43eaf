"""Knows how many cores this process may use; does not know what for."""

import os


def n_cores() -> int:
    """At least 1; no more than the scheduler lets this process use, where it says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
