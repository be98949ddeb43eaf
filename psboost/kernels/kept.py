"""Knows how a tuple of arrays is kept where kernels of all threads find it, by number; does not know what is in it.

What Python hands over goes to one call of a kernel, and to as many arguments as are declared. Of parts or chunks there are
as many as there happen to be: a kernel that is called for each keeps what it got in an array of words, as compiled code
holds it, and others read it there. Python has to hold the arrays meanwhile.
"""

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from psboost.kernels.compile import types, void


def words_of(kind) -> int:
    """How many words (int64) a tuple of this type takes, at most."""
    if isinstance(kind, types.Array):
        return 5 + 2 * kind.ndim
    return sum(map(words_of, kind)) if isinstance(kind, types.BaseTuple) else 1


@intrinsic
def keep(typing_context, held, k, memory, n_words):
    """Keeps a tuple as number k of `memory` (int64, n_words for each)  # OUT"""

    def generate(context, builder, signature, args):
        place = _place(context, builder, held, memory, args[2], builder.mul(args[1], args[3]))
        builder.store(_without_owners(context, builder, held, args[0]), place, align=8)
        return context.get_dummy_value()

    return void(held, types.int64, memory, types.int64), generate


def reader(kind_of, n_words):
    """A helper of kernels, read(memory, k, like): the tuple that was kept as number k. Its type is kind_of(*types of the
    items of `like`), arrays."""

    @intrinsic
    def read(typing_context, memory, k, like):
        kind = kind_of(*(array.dtype for array in like))

        def generate(context, builder, signature, args):
            at = builder.mul(args[1], ir.Constant(ir.IntType(64), n_words))
            return builder.load(_place(context, builder, kind, memory, args[0], at), align=8)

        return kind(memory, types.int64, like), generate

    return read


def _place(context, builder, kind, memory_type, memory, at):
    """In LLVM: word `at`, where a tuple of this type is kept."""
    value_type = context.get_value_type(kind)
    assert context.get_abi_sizeof(value_type) <= 8 * words_of(kind)
    view = cgutils.create_struct_proxy(memory_type)(context, builder, value=memory)
    return builder.bitcast(builder.gep(view.data, [at]), value_type.as_pointer())


def _without_owners(context, builder, kind, value):
    """In LLVM: the same arrays, as ones that are nobody's: compiled code counts who uses those that are somebody's."""
    if isinstance(kind, types.Array):
        view = cgutils.create_struct_proxy(kind)(context, builder, value=value)
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        return view._getvalue()
    if isinstance(kind, types.BaseTuple):
        for i, inner in enumerate(kind):
            held = _without_owners(context, builder, inner, builder.extract_value(value, i))
            value = builder.insert_value(value, held, i)
    return value
