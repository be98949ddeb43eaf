"""Knows compiled code: keeps it in files, and links it into this process; does not know how code is compiled.

numba's own cache brings back all that it takes to compile callers, in 2 to 4 ms a kernel. To be called, it has to be linked:
a tenth of that time, and 0.6 of the memory.
"""

import ctypes
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from llvmlite.binding import ExecutionEngine, ObjectFileRef, add_symbol
from numba import _dynfunc
from numba.core.runtime._nrt_python import c_helpers

from psboost.files import replaced

for _name, _address in c_helpers.items():  # what compiled code calls, by the names that numba gives it when it compiles
    add_symbol(_name if _name.startswith("_") else f"NRT_{_name}", _address)

_SUM_BYTES = 4


class Code(NamedTuple):
    """A function compiled for one signature.

    object_file  as a linker takes it
    symbol       of what Python calls
    constants    by the symbol of each environment, the function's own first: Python's objects that the code uses
    descriptor   what numba knows of it when it compiles callers, pickled
    """

    object_file: bytes
    symbol: str
    constants: dict[str, list]
    descriptor: bytes


def link(code: Code, name: str, module: ModuleType, engine: ExecutionEngine) -> Callable:
    """The function, of that name and module, for Python to call; what it calls is linked already."""
    engine.add_object_file(ObjectFileRef.from_data(code.object_file))
    engine.finalize_object()
    environments = []
    for symbol, constants in code.constants.items():
        environment = _dynfunc.Environment(vars(module))
        environment.consts.extend(constants)
        ctypes.c_void_p.from_address(engine.get_global_value_address(symbol)).value = id(environment)
        environments.append(environment)
    address = engine.get_function_address(code.symbol)
    return _dynfunc.make_function(module, name, "", address, environments[0], tuple(environments))


def keep(path: Path, held: Any) -> None:
    """`path` is a file with that, which pickle takes, and with a sum of its bytes: whole, or what it was."""
    pickled = pickle.dumps(held, pickle.HIGHEST_PROTOCOL)
    with replaced(path, "wb") as file:
        file.write(_sum_of(pickled) + pickled)


def kept(path: Path) -> Any:
    """What the file holds; None if it is not there, or damaged."""
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return None
    pickled = content[_SUM_BYTES:]
    return pickle.loads(pickled) if content[:_SUM_BYTES] == _sum_of(pickled) else None


def _sum_of(pickled: bytes | memoryview) -> bytes:
    return zlib.crc32(pickled).to_bytes(_SUM_BYTES, "little")
