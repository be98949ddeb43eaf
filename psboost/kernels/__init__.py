"""The only folder that imports numba: arrays in, arrays out; knows no feature names, roles or files.

Compiled code is kept in a cache folder whose name holds a hash of all that it depends on: this folder's sources, where they
lie and when they were written, numba and its settings, numpy, the Python and the processor.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numba
import numpy

_UNUSED = 30 * 24 * 3600  # seconds since a process has begun with a folder: it is of another version or processor


def _cache_folder() -> Path:
    """The folder for this exact set of kernels, made if it is not there; if no home is writable, a temporary one that is the
    user's alone, as what lies there is run."""
    versions = f"{numba.__version__} {numpy.__version__} {sys.implementation.cache_tag}"
    settings = [getattr(numba.config, name) for name in ("CPU_NAME", "CPU_FEATURES", "ENABLE_AVX", "OPT")]
    digest = hashlib.sha256(f"{versions} {settings}".encode() + _processor())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{source.resolve()} {source.stat().st_mtime_ns}".encode() + source.read_bytes())
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache"))
    of_user, name = Path(tempfile.gettempdir()) / f"psboost-{os.getuid()}", f"kernels-{digest.hexdigest()[:16]}"
    folder, temporary = home / "psboost" / name, of_user / name
    if home.is_absolute():  # a user whom the system does not know has none
        with suppress(OSError):
            if not folder.exists():
                _remove_unused(folder.parent)
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                os.utime(folder)
                return folder
    with suppress(OSError):
        of_user.mkdir(mode=0o700, exist_ok=True)
        status = of_user.lstat()
        if status.st_uid == os.getuid() and status.st_mode & 0o7777 == 0o700:
            temporary.mkdir(exist_ok=True)
            return temporary
    raise OSError(f"no folder for compiled kernels: {home} is not writable, and {of_user} not this user's alone")


def _remove_unused(folder: Path) -> None:
    """Removes the folders of kernels in it that no process has begun with for a month."""
    for unused in folder.glob("kernels-*"):
        with suppress(OSError):
            if unused.stat().st_mtime < time.time() - _UNUSED:
                shutil.rmtree(unused, ignore_errors=True)


def _processor() -> bytes:
    """What tells one that code is compiled for from another, without LLVM, which takes long to load."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(1 << 14).partition(b"\n\n")[0].splitlines()  # of the first core
    except OSError:
        return platform.processor().encode()
    return b"\n".join(line for line in lines if line.startswith((b"model name", b"flags", b"CPU part", b"Features")))


CACHE_FOLDER = _cache_folder()
