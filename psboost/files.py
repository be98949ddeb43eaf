"""Knows how a file is written whole or not at all, and whether it can be; does not know what is in it."""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from psboost.errors import ParameterError

_OPEN = "/dev/fd/", "/dev/stdout", "/dev/stderr", "/proc/"


def is_replaced(path: str | os.PathLike[str]) -> bool:
    """Whether `replaced` puts a new file in the place of what is there: not of a pipe or a device, or of a file that is open
    and named by that, which stay."""
    if os.path.abspath(path).startswith(_OPEN):
        return False
    return not os.path.exists(path) or os.path.isfile(path)


@contextmanager
def replaced(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to; `path` is it when all is written, and until then, or if that fails, what it was. OSError.

    mode  "w" (UTF-8) or "wb"
    """
    how = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    if not is_replaced(path):
        with open(path, mode.replace("w", "a"), **how) as file:  # behind what others have written there
            yield file
        return
    path = Path(os.path.realpath(path))  # behind a link, what it points to
    # Created like any file, so that it gets the rights that any file would get here.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(temporary, mode, **how) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, os.fspath(temporary)):
            error.filename = os.fspath(path)
        raise


def check_outputs(outputs: Iterable, inputs: Iterable) -> None:
    """ParameterError before any work if one of `outputs` could not be written after it, or would replace another one or what
    is read; None are no paths."""
    taken = {os.path.realpath(path): path for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        place = os.path.realpath(path)
        if is_replaced(path) and place in taken:
            raise ParameterError(f"{path} would take the place of {taken[place]}: choose another name")
        taken[place] = path
        _check_writable(path)


def _check_writable(path: str | os.PathLike[str]) -> None:
    """ParameterError before any work if `path` could not be written after it."""
    path = Path(path)
    folder = path.parent
    if str(path) == "-":
        raise ParameterError("-: name a file, as this does not go to stdout")
    if path.is_dir():
        raise ParameterError(f"{path} is a directory: name a file to write to")
    if not folder.is_dir():
        raise ParameterError(f"{path} cannot be written: there is no folder {folder}; make it first")
    if (is_replaced(path) and not os.access(folder, os.W_OK)) or (path.exists() and not os.access(path, os.W_OK)):
        raise ParameterError(f"{path} cannot be written: no permission; choose another place")
