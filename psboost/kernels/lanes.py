"""Knows vectors of LANES rows, a bit or a float for each row of a block; does not know trees or what is asked of a row.

They are written as LLVM's own vectors, which become those of the processor: no loop has to be recognised as one. A row of
LANES bits is WORDS uint64, row 0 in the lowest bit of the first; arrays of such rows of bits are counted by the row.
No index is checked.
"""

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from psboost.kernels.compile import types, void
from psboost.kernels.words import pointer, spread

LANES, WORDS = 256, 4
_AT_ONCE = 64  # lanes whose floats are compared, and whose numbers are put together, in one go
_COMPARED = _GATHERED = 8

_BIT, _BYTE, _HALF, _INDEX, _WORD, _FLOAT = (*(ir.IntType(n) for n in (1, 8, 16, 32, 64)), ir.FloatType())
_ROW = ir.VectorType(_WORD, WORDS)


def _comparison(compare):
    """A word: bit i is whether cells[at + i] < threshold, by llvmlite's `compare`, which says what becomes of NaN."""

    @intrinsic
    def compared(typing_context, cells, at, threshold):
        def generate(context, builder, signature, args):
            kind = ir.VectorType(_FLOAT, _COMPARED)
            bounds, word = spread(builder, kind, args[2]), ir.Constant(_WORD, 0)
            for begin in range(0, _AT_ONCE, _COMPARED):  # of a whole word's lanes at once, LLVM makes much slower code
                place = builder.add(args[1], ir.Constant(_WORD, begin))
                held = builder.load(pointer(context, builder, cells, args[0], place, kind), align=4)
                found = builder.bitcast(getattr(builder, compare)("<", held, bounds), _BYTE)
                word = builder.or_(word, builder.shl(builder.zext(found, _WORD), ir.Constant(_WORD, begin)))
            return word

        return types.uint64(cells, at, threshold), generate

    return compared


is_below = _comparison("fcmp_ordered")  # of NaN: no
is_below_or_nan = _comparison("fcmp_unordered")


@intrinsic
def part(typing_context, reached, node, conditions, condition, left, right):
    """Parts the row of bits reached[node] into reached[left], where conditions[condition] is 1, and reached[right]."""

    def generate(context, builder, signature, args):
        here = builder.load(_row(context, builder, reached, args[0], args[1]), align=8)
        goes_left = builder.load(_row(context, builder, conditions, args[2], args[3]), align=8)
        builder.store(builder.and_(here, goes_left), _row(context, builder, reached, args[0], args[4]), align=8)
        goes_right = builder.not_(goes_left)
        builder.store(builder.and_(here, goes_right), _row(context, builder, reached, args[0], args[5]), align=8)
        return context.get_dummy_value()

    return void(reached, node, conditions, condition, left, right), generate


@intrinsic
def fold(typing_context, reached, begin, n_groups, planes, plane):
    """Of n_groups groups of 8 rows of bits from reached[begin] on, in which a lane has one 1 at most: planes[plane + j] is
    bit j, of 3, of its row's number in its group; then reached[begin + g] is whether the lane has its 1 in group g."""

    def generate(context, builder, signature, args):
        either = builder.or_
        bits = [cgutils.alloca_once_value(builder, ir.Constant(_ROW, None)) for _ in range(3)]
        for bit in bits:  # in a loop, the place is made once but is to begin anew
            builder.store(ir.Constant(_ROW, None), bit)
        with cgutils.for_range(builder, args[2]) as loop:
            first = builder.add(args[1], builder.shl(loop.index, ir.Constant(_WORD, 3)))
            rows = []
            for k in range(8):
                place = _row(context, builder, reached, args[0], builder.add(first, ir.Constant(_WORD, k)))
                rows.append(builder.load(place, align=8))
            pairs = [either(rows[k], rows[k + 1]) for k in range(0, 8, 2)]
            odd = either(either(rows[1], rows[3]), either(rows[5], rows[7]))
            upper = either(pairs[2], pairs[3])
            for bit, here in zip(bits, (odd, either(pairs[1], pairs[3]), upper), strict=True):
                builder.store(either(builder.load(bit), here), bit)
            place = _row(context, builder, reached, args[0], builder.add(args[1], loop.index))
            builder.store(either(either(pairs[0], pairs[1]), upper), place, align=8)
        for j, bit in enumerate(bits):
            place = _row(context, builder, planes, args[3], builder.add(args[4], ir.Constant(_WORD, j)))
            builder.store(builder.load(bit), place, align=8)
        return context.get_dummy_value()

    return void(reached, begin, n_groups, planes, plane), generate


def _addition(number):
    """sums[lane] += values[first + the lane's number], of which planes[j], j < n_planes, hold bit j; in bits of `number`."""
    kind, floats = ir.VectorType(number, _AT_ONCE), ir.VectorType(_FLOAT, _GATHERED)

    @intrinsic
    def add_numbered(typing_context, planes, n_planes, values, first, sums):
        def generate(context, builder, signature, args):
            none = ir.Constant(kind, None)
            own = builder.gep(cgutils.create_struct_proxy(values)(context, builder, value=args[2]).data, [args[3]])
            numbers = cgutils.alloca_once_value(builder, none)
            with cgutils.for_range(builder, ir.Constant(_WORD, LANES // _AT_ONCE)) as word:
                builder.store(none, numbers)
                with cgutils.for_range(builder, args[1]) as plane:
                    at = builder.add(builder.mul(plane.index, ir.Constant(_WORD, WORDS)), word.index)
                    bits = builder.load(pointer(context, builder, planes, args[0], at, _WORD), align=8)
                    weight = builder.shl(ir.Constant(number, 1), builder.trunc(plane.index, number))
                    bits = builder.bitcast(bits, ir.VectorType(_BIT, _AT_ONCE))
                    weights = builder.select(bits, spread(builder, kind, weight), none)
                    builder.store(builder.or_(builder.load(numbers), weights), numbers)
                # Taken out of whole words, which takes fewer steps than out of the vector one by one.
                n_words = _AT_ONCE * number.width // 64
                words = builder.bitcast(builder.load(numbers), ir.VectorType(_WORD, n_words))
                for begin in range(0, _AT_ONCE, _GATHERED):
                    chosen = ir.Constant(floats, ir.Undefined)
                    for lane in range(begin, begin + _GATHERED):
                        in_word, shift = divmod(lane * number.width, 64)
                        held = builder.extract_element(words, ir.Constant(_INDEX, in_word))
                        held = builder.lshr(held, ir.Constant(_WORD, shift))
                        held = builder.and_(held, ir.Constant(_WORD, (1 << number.width) - 1))
                        value = builder.load(builder.gep(own, [held]))
                        chosen = builder.insert_element(chosen, value, ir.Constant(_INDEX, lane - begin))
                    at = builder.add(builder.mul(word.index, ir.Constant(_WORD, _AT_ONCE)), ir.Constant(_WORD, begin))
                    place = pointer(context, builder, sums, args[4], at, floats)
                    builder.store(builder.fadd(builder.load(place, align=4), chosen), place, align=4)
            return context.get_dummy_value()

        return void(planes, n_planes, values, first, sums), generate

    return add_numbered


add_numbered, add_widely_numbered = _addition(_BYTE), _addition(_HALF)


def _row(context, builder, array_type, array, at):
    """Where row `at` of an array of rows of bits lies."""
    return pointer(context, builder, array_type, array, builder.mul(at, ir.Constant(_WORD, WORDS)), _ROW)
