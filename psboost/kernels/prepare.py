"""Knows when kernels have to be compiled, and that one process does it while the others wait."""

import fcntl
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from psboost.kernels import CACHE_FOLDER


def prepare(say: Callable[[str], None] | None = None) -> None:
    """Imports all kernels, which compiles them if this installation has not done so; `say` is told when it must."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    modules = [name for name in names if name not in ("__init__", "compile", "prepare")]
    compiled = CACHE_FOLDER / "compiled"
    if compiled.exists():
        for name in modules:
            import_module(f"psboost.kernels.{name}")
        return
    with open(CACHE_FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if say is not None and not compiled.exists():
            say("compiling, once for this installation (under a minute)")
        for name in modules:
            import_module(f"psboost.kernels.{name}")
        compiled.touch()
