"""Knows how an installation of psboost is settled before anything is timed; does not know what is timed."""

import subprocess
import sys

_SETTLE = """
import compileall, psboost
from psboost.kernels.prepare import JOBS, SELDOM, prepare
compileall.compile_dir(psboost.__path__[0], quiet=1)
prepare(*JOBS, variants=[(), SELDOM])
"""


def settle() -> None:
    """Sees to psboost's bytecode, which pip writes and a source tree may lack, and to its compiled kernels."""
    subprocess.run([sys.executable, "-P", "-c", _SETTLE], check=True)
