"""Knows how an installation of psboost, and the memory, are settled before anything is timed; not what is timed."""

import os
import subprocess
import sys

_SETTLE = """
import compileall, psboost
from psboost.kernels.prepare import JOBS, prepare
compileall.compile_dir(psboost.__path__[0], quiet=1)
prepare(*JOBS)
"""


def settle() -> None:
    """Sees to psboost's bytecode, which pip writes and a source tree may lack, and to its compiled kernels."""
    subprocess.run([sys.executable, "-P", "-c", _SETTLE], check=True)
    settle_memory()


_TOUCH = """
import sys, numpy
held = [numpy.ones(1 << 27, numpy.uint8) for _ in range(int(sys.argv[1]))]
"""
_MOST = 6 << 30  # bytes: more than any measure takes


def settle_memory() -> None:
    """Uses much of the free memory once: a virtual machine gets what it has never used at 2 ms a MB, as was measured, and
    whoever is first would pay for it."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    subprocess.run([sys.executable, "-c", _TOUCH, str(min(_MOST, free // 2) >> 27)], check=True)
