"""Knows how eight slots of a histogram are looked at in one go, those that are present moved together; does not know gains.

Written as LLVM's own vectors, and CAN says whether the processor has an instruction that moves chosen lanes together
(AVX-512's compress), CAN_WEIGH whether it has eight lanes of float32. Where it has none, one by one is as quick, by a loop
that knows in which form sums are.
"""

from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import intrinsic, overload

from psboost.kernels.compile import float32, inline, int64, types, uint64
from psboost.kernels.slots import read, write
from psboost.kernels.words import spread

CAN, CAN_WEIGH = (bool(binding.get_host_cpu_features().get(name, False)) for name in ("avx512f", "avx2"))
_LANES, _LOW = 8, 0xFFFFFFFF
_1 = uint64(1)
_INT, _SLOT, _NUMBER, _FLOAT = ir.IntType(8), ir.IntType(64), ir.IntType(32), ir.FloatType()
_SLOTS, _NUMBERS, _FLOATS, _BITS = (ir.VectorType(kind, _LANES) for kind in (_SLOT, _NUMBER, _FLOAT, ir.IntType(1)))
_FROM_ZERO = ir.Constant(_SLOTS, list(range(_LANES)))
_FROM_ONE = ir.Constant(_NUMBERS, list(range(1, _LANES + 1)))
_PAIRS = ir.VectorType(_SLOT, 2 * _LANES)
_EVEN, _ODD = (ir.Constant(_NUMBERS, list(range(side, 2 * _LANES, 2))) for side in range(2))
_IN_TURNS = ir.Constant(ir.VectorType(_NUMBER, 2 * _LANES), [k for lane in range(_LANES) for k in (lane, lane + _LANES)])


def share_eights(begin, n, first, node_bins, node_sums, acc, at, rest, child_bins, child_sums):
    """Shares 8 n packed slots of a node, from `begin` on, out to two children, as kernels.node_histograms.share_out does.

    The one has what is in `acc`, bin b in slot b - first; it goes to child_bins and child_sums from `at` on. The other's
    goes to node_bins and node_sums from `rest` on, which is not above `begin`. Eight of each are written where fewer are
    present. Returns the new `at` and `rest`, and what the hesses of both children come to.
    """
    child_stored = rest_stored = 0
    for k in range(begin, begin + 8 * n):
        b = node_bins[k]
        value = acc[b - first]
        other = node_sums[k] - value
        child_bins[at], child_sums[at] = b, value
        node_bins[rest], node_sums[rest] = b, other
        at += int(value != 0)
        rest += int(other != 0)
        child_stored += int(value) & _LOW
        rest_stored += int(other) & _LOW
    return at, rest, child_stored, rest_stored


@intrinsic
def _share_eights(typing_context, begin, n, first, node_bins, node_sums, acc, at, rest, child_bins, child_sums):
    def generate(context, builder, signature, args):
        begin_, n_, first_, *of_node, slots, at_, rest_, bins_of_child, sums_of_child = _operands(
            context, builder, signature, args
        )
        nothing = ir.Constant(_SLOTS, None)
        ends = [_variable(builder, value) for value in (at_, rest_)]
        stored = [_variable(builder, nothing) for _ in ends]
        low, first_of_lanes = spread(builder, _SLOTS, ir.Constant(_SLOT, _LOW)), spread(builder, _SLOTS, first_)
        with cgutils.for_range(builder, n_) as loop:
            k = builder.add(begin_, builder.shl(loop.index, ir.Constant(_SLOT, 3)))
            bins, sums = _load(builder, of_node[0], k, _NUMBERS), _load(builder, of_node[1], k, _SLOTS)
            values = _gather(builder, slots, bins, first_of_lanes)
            both = values, builder.sub(sums, values)
            to = (bins_of_child, sums_of_child), of_node
            for end, total, here, (to_bins, to_sums) in zip(ends, stored, both, to, strict=True):
                is_present, begins = builder.icmp_unsigned("!=", here, nothing), builder.load(end)
                _store(builder, to_bins, begins, _together(builder, bins, is_present))
                _store(builder, to_sums, begins, _together(builder, here, is_present))
                builder.store(builder.add(begins, _count(builder, is_present)), end)
                builder.store(builder.add(builder.load(total), builder.and_(here, low)), total)
        sums = [_sum(builder, builder.load(total)) for total in stored]
        return context.make_tuple(builder, signature.return_type, [*map(builder.load, ends), *sums])

    arguments = begin, n, first, node_bins, node_sums, acc, at, rest, child_bins, child_sums
    return types.UniTuple(int64, 4)(*arguments), generate


@overload(share_eights)
def _compiled_share_eights(begin, n, first, node_bins, node_sums, acc, at, rest, child_bins, child_sums):
    def compiled(begin, n, first, node_bins, node_sums, acc, at, rest, child_bins, child_sums):
        return _share_eights(
            int64(begin), int64(n), int64(first), node_bins, node_sums, acc, int64(at), int64(rest), child_bins, child_sums
        )

    return compiled


def share_singles(
    pairs, i, begin, first, least, node_features, node_starts, node_bins, node_sums, acc, n_child, n_rest, at, rest,
    child_features, child_starts, child_bins, child_sums,
):  # fmt: skip
    """Shares eight features of one bin each out: features i .. i + 8 of a node, whose bins begin at `begin`. Each is
    written, from n_child and n_rest on, without a test, and moved on from where its hesses come to `least`.

    pairs  a literal: whether the sums of the node, and of the other child, are in pairs; the one's are packed

    Returns the new n_child, n_rest, at and rest; how many bins the one child has, and in how many it has more than the node.
    """
    n_taken, n_wrong = uint64(0), int64(0)
    for lane in range(uint64(0), uint64(_LANES)):
        feature, b = node_features[i + lane], node_bins[begin + lane]
        grad, hess = read(acc, False, b - first)
        node_grad, node_hess = read(node_sums, pairs, begin + lane)
        other = node_hess - hess
        child_features[n_child], child_starts[n_child + _1], child_bins[at] = feature, at + _1, b
        write(grad, hess, False, at, child_sums)
        node_features[n_rest], node_starts[n_rest + _1], node_bins[rest] = feature, rest + _1, b
        write(node_grad - grad, other, pairs, rest, node_sums)
        lives, rest_lives = uint64(hess >= least), uint64(other >= least)
        n_child, at, n_rest, rest = n_child + lives, at + lives, n_rest + rest_lives, rest + rest_lives
        n_taken += uint64(hess != 0)
        n_wrong += int64(other < 0)
    return n_child, n_rest, at, rest, n_taken, n_wrong


def _share_singles(pairs):
    @intrinsic
    def share(
        typing_context, i, begin, first, least, node_features, node_starts, node_bins, node_sums, acc, n_child, n_rest, at,
        rest, child_features, child_starts, child_bins, child_sums,
    ):  # fmt: skip
        def generate(context, builder, signature, args):
            operands = _operands(context, builder, signature, args)
            (i_, begin_, first_, least_, *of_node, slots, n_child_, n_rest_, at_, rest_), of_child = (
                operands[:13], operands[13:]
            )  # fmt: skip
            features, bins = _load(builder, of_node[0], i_, _NUMBERS), _load(builder, of_node[2], begin_, _NUMBERS)
            values = _gather(builder, slots, bins, spread(builder, _SLOTS, first_))
            low = spread(builder, _SLOTS, ir.Constant(_SLOT, _LOW))
            hesses = builder.and_(values, low)
            if pairs:
                grads = builder.ashr(values, spread(builder, _SLOTS, ir.Constant(_SLOT, 32)))
                node_grads, node_hesses = _load_pairs(builder, of_node[3], begin_)
                others = builder.sub(node_hesses, hesses)
                of_rest = [builder.sub(node_grads, grads), others]
            else:
                sums = _load(builder, of_node[3], begin_, _SLOTS)
                others = builder.sub(builder.and_(sums, low), hesses)
                of_rest = [builder.sub(sums, values)]
            nothing, leasts = ir.Constant(_SLOTS, None), spread(builder, _SLOTS, least_)
            written = []
            for to, n, end, here, hesses_here in (
                (of_child, n_child_, at_, [values], hesses), (of_node, n_rest_, rest_, of_rest, others)
            ):
                lives = builder.icmp_signed(">=", hesses_here, leasts)
                _store(builder, to[0], n, _together(builder, features, lives))
                _store(builder, to[2], end, _together(builder, bins, lives))
                _store_sums(builder, to[3], end, [_together(builder, column, lives) for column in here])
                ends = builder.add(spread(builder, _NUMBERS, builder.trunc(end, _NUMBER)), _FROM_ONE)
                _store(builder, to[1], builder.add(n, ir.Constant(_SLOT, 1)), ends)
                n_lives = _count(builder, lives)
                written.append((builder.add(n, n_lives), builder.add(end, n_lives)))
            (n_child_, at_), (n_rest_, rest_) = written
            n_taken = _count(builder, builder.icmp_unsigned("!=", hesses, nothing))
            n_wrong = _count(builder, builder.icmp_signed("<", others, nothing))
            return context.make_tuple(builder, signature.return_type, [n_child_, n_rest_, at_, rest_, n_taken, n_wrong])

        arguments = (
            i, begin, first, least, node_features, node_starts, node_bins, node_sums, acc, n_child, n_rest, at, rest,
            child_features, child_starts, child_bins, child_sums,
        )  # fmt: skip
        return types.UniTuple(int64, 6)(*arguments), generate

    return share


_SHARE_SINGLES = {pairs: _share_singles(pairs) for pairs in (False, True)}


def _compiled_share_singles(
    pairs, i, begin, first, least, node_features, node_starts, node_bins, node_sums, acc, n_child, n_rest, at, rest,
    child_features, child_starts, child_bins, child_sums,
):  # fmt: skip
    share = _SHARE_SINGLES[pairs.literal_value]

    def compiled(
        pairs, i, begin, first, least, node_features, node_starts, node_bins, node_sums, acc, n_child, n_rest, at, rest,
        child_features, child_starts, child_bins, child_sums,
    ):  # fmt: skip
        return share(
            int64(i), int64(begin), int64(first), int64(least), node_features, node_starts, node_bins, node_sums, acc,
            int64(n_child), int64(n_rest), int64(at), int64(rest), child_features, child_starts, child_bins, child_sums,
        )  # fmt: skip

    return compiled


if CAN:
    overload(share_singles, prefer_literal=True)(_compiled_share_singles)
else:
    share_singles = inline(share_singles)


def weigh(sums, begin, n):
    """What n packed slots from `begin` on, of hesses above 0, come to; and, nearly, sum of grad^2 / hess, and sum of |grad|.
    As many slots are read as eights of them hold.

    In 0.5 to 0.8 of a loop's time, whose end comes where no processor expects it: features have some dozens of bins, now
    more and now fewer.
    """
    total, squares, size = 0, float32(0), float32(0)
    for k in range(begin, begin + n):
        grad, hess = read(sums, False, k)
        total += int(sums[k])
        squares += float32(grad) * float32(grad) / float32(hess)
        size += float32(abs(grad))
    return total, squares, size


@intrinsic
def _weigh(typing_context, sums, begin, n):
    def generate(context, builder, signature, args):
        slots, begin_, n_ = _operands(context, builder, signature, args)
        nothing, one = ir.Constant(_SLOTS, None), ir.Constant(_FLOATS, [1.0] * _LANES)
        totals, squares, sizes = (_variable(builder, ir.Constant(kind, None)) for kind in (_SLOTS, _FLOATS, _FLOATS))
        n_eights = builder.lshr(builder.add(n_, ir.Constant(_SLOT, _LANES - 1)), ir.Constant(_SLOT, 3))
        with cgutils.for_range(builder, n_eights) as loop:
            done = builder.shl(loop.index, ir.Constant(_SLOT, 3))
            is_one = builder.icmp_signed("<", _FROM_ZERO, spread(builder, _SLOTS, builder.sub(n_, done)))
            here = builder.select(is_one, _load(builder, slots, builder.add(begin_, done), _SLOTS), nothing)
            highs = builder.ashr(here, spread(builder, _SLOTS, ir.Constant(_SLOT, 32)))
            grads = builder.sitofp(builder.trunc(highs, _NUMBERS), _FLOATS)
            hesses = builder.uitofp(builder.trunc(here, _NUMBERS), _FLOATS)
            hesses = builder.select(builder.fcmp_ordered(">", hesses, one), hesses, one)  # of what is not one of the n, too
            builder.store(builder.add(builder.load(totals), here), totals)
            of_lanes = builder.fdiv(builder.fmul(grads, grads), hesses)
            builder.store(builder.fadd(builder.load(squares), of_lanes), squares)
            builder.store(builder.fadd(builder.load(sizes), _absolute(builder, grads)), sizes)
        floats = [_sum_floats(builder, builder.load(of_lanes)) for of_lanes in (squares, sizes)]
        return context.make_tuple(builder, signature.return_type, [_sum(builder, builder.load(totals)), *floats])

    return types.Tuple((int64, float32, float32))(sums, begin, n), generate


@overload(weigh)
def _compiled_weigh(sums, begin, n):
    return lambda sums, begin, n: _weigh(sums, int64(begin), int64(n))


def _operands(context, builder, signature, args):
    """The arguments; of arrays, where their elements lie."""
    return [
        cgutils.create_struct_proxy(kind)(context, builder, value=value).data if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, args, strict=True)
    ]


def _variable(builder, value):
    """A place that holds `value` each time that the code comes by: it is made once."""
    place = cgutils.alloca_once(builder, value.type)
    builder.store(value, place)
    return place


def _load(builder, data, at, kind):
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind.as_pointer()), align=kind.element.width // 8)


def _load_pairs(builder, data, at):
    """Grads and hesses of eight pairs."""
    pairs = _load(builder, data, builder.shl(at, ir.Constant(_SLOT, 1)), _PAIRS)
    return [builder.shuffle_vector(pairs, ir.Constant(_PAIRS, ir.Undefined), side) for side in (_EVEN, _ODD)]


def _store(builder, data, at, vector):
    place = builder.bitcast(builder.gep(data, [at]), vector.type.as_pointer())
    builder.store(vector, place, align=vector.type.element.width // 8)


def _store_sums(builder, data, at, columns):
    """Stores packed slots; or grads and hesses, two columns, as pairs."""
    if len(columns) == 2:
        columns, at = [builder.shuffle_vector(*columns, _IN_TURNS)], builder.shl(at, ir.Constant(_SLOT, 1))
    _store(builder, data, at, *columns)


def _gather(builder, slots, bins, firsts):
    """The slots of these bins, the first of them being `firsts`, in each lane."""
    places, values = builder.sub(builder.zext(bins, _SLOTS), firsts), ir.Constant(_SLOTS, ir.Undefined)
    for lane in range(_LANES):
        place = builder.extract_element(places, ir.Constant(_NUMBER, lane))
        values = builder.insert_element(values, builder.load(builder.gep(slots, [place])), ir.Constant(_NUMBER, lane))
    return values


def _count(builder, bits):
    """How many lanes are 1."""
    return builder.zext(builder.ctpop(builder.bitcast(bits, _INT)), _SLOT)


def _together(builder, vector, chosen):
    """The chosen lanes, side by side from the first one on."""
    kind = vector.type
    name = f"llvm.experimental.vector.compress.v{_LANES}i{kind.element.width}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, _BITS, kind]), name)
    return builder.call(function, [vector, chosen, ir.Constant(kind, ir.Undefined)])


def _sum(builder, vector):
    name = f"llvm.vector.reduce.add.v{_LANES}i64"
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(_SLOT, [_SLOTS]), name), [vector])


def _sum_floats(builder, vector):
    """In any order."""
    name = f"llvm.vector.reduce.fadd.v{_LANES}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOAT, [_FLOAT, _FLOATS]), name)
    return builder.call(function, [ir.Constant(_FLOAT, 0.0), vector], fastmath=("reassoc",))


def _absolute(builder, vector):
    name = f"llvm.fabs.v{_LANES}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOATS, [_FLOATS]), name), [vector])
