"""Inner loops whose sums stay in registers, written in LLVM's own language.

They lean on numba's internals (``numba.core``, ``numba.np.arrayobj``), which no version promises to keep:
the package bounds numba's version, and ``vectors`` falls back on plain loops.

What the compiler makes of such loops by itself checks anew every time whether arrays overlap, and sends
every sum through memory. Here the sums of a block are one vector value, which becomes four registers on
arm64, two with AVX and one with AVX-512. Arrays are contiguous, indices are not negative, and nothing is
checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

BLOCK, LANES, TILE = 16, 8, 4  # as in ``vectors``
WIDE = 80  # columns whose sums stay in registers, side by side

_SINGLE = ir.FloatType()
_BLOCK = ir.VectorType(_SINGLE, BLOCK)
_LANES = ir.VectorType(ir.DoubleType(), LANES)
_FAST = ("reassoc", "contract", "arcp", "nsz")


class _Array:
    """An array argument of an intrinsic, one- or two-dimensional."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.builder = builder
        self.view = make_array(kind)(context, builder, value)

    def pointer(self, *indices: Any) -> Any:
        """Return the address of one element."""
        builder, word = self.builder, self.view.shape.type.element
        wide = [
            builder.zext(index, word) if index.type.width < word.width else index for index in indices
        ]
        offset = wide[0]
        if len(wide) == 2:
            columns = builder.extract_value(self.view.shape, 1)
            offset = builder.add(builder.mul(wide[0], columns), wide[1])
        return builder.gep(self.view.data, [offset])

    def element(self, index: Any) -> Any:
        """Return one element."""
        return self.builder.load(self.pointer(index))

    def load(self, kind: Any, *indices: Any) -> Any:
        """Return as many elements as ``kind`` holds, from one on."""
        pointer = self.builder.bitcast(self.pointer(*indices), kind.as_pointer())
        return self.builder.load(pointer, align=4)

    def store(self, values: Any, *indices: Any) -> None:
        """Write these elements, from one on."""
        pointer = self.builder.bitcast(self.pointer(*indices), values.type.as_pointer())
        self.builder.store(values, pointer, align=4)


def _arguments(context: Any, builder: Any, signature: Any, values: Any) -> list[Any]:
    return [
        _Array(context, builder, kind, value) if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, values, strict=True)
    ]


@intrinsic
def prefetch_lines(typing: Any, table: Any, index: Any, begin: Any, end: Any) -> Any:
    """Ask for the lines ``index[begin:end]`` to be brought near, as far as there are any."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table_, index_, begin_, end_ = _arguments(context, builder, signature, values)
        last = builder.extract_value(index_.view.shape, 0)
        end_ = builder.select(builder.icmp_signed("<", end_, last), end_, last)
        integer, block = ir.IntType(32), ir.Constant(last.type, BLOCK)
        blocks = builder.udiv(builder.extract_value(table_.view.shape, 1), block)
        to_read, to_keep, data = (ir.Constant(integer, value) for value in (0, 3, 1))
        with cgutils.for_range_slice(builder, begin_, end_, ir.Constant(last.type, 1)) as (place, _):
            line = index_.element(place)
            with cgutils.for_range(builder, blocks) as loop:
                there = table_.pointer(line, builder.mul(loop.index, block))
                pointer = builder.bitcast(there, ir.IntType(8).as_pointer())
                hint = ir.FunctionType(ir.VoidType(), [pointer.type, integer, integer, integer])
                function = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0")
                builder.call(function, [pointer, to_read, to_keep, data])
        return context.get_dummy_value()

    return types.void(table, index, begin, end), generate


@intrinsic
def dot16(typing: Any, own: Any, at: Any, table: Any, line: Any, column: Any) -> Any:
    """Return the product of ``own[at : at + 16]`` with sixteen columns of a line, from ``column`` on."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        own_, at_, table_, line_, column_ = _arguments(context, builder, signature, values)
        product = builder.fmul(own_.load(_BLOCK, at_), table_.load(_BLOCK, line_, column_), flags=_FAST)
        return _sum_of(builder, product)

    return types.float32(own, at, table, line, column), generate


@intrinsic
def products16(
    typing: Any, own: Any, at: Any, table: Any, line: Any, column: Any, out: Any, to: Any
) -> Any:
    """Do as ``dot16``, and write the sixteen products to line ``to`` of ``out``, from ``column`` on."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        own_, at_, table_, line_, column_, out_, to_ = _arguments(context, builder, signature, values)
        product = builder.fmul(own_.load(_BLOCK, at_), table_.load(_BLOCK, line_, column_), flags=_FAST)
        out_.store(product, to_, column_)
        return _sum_of(builder, product)

    return types.float32(own, at, table, line, column, out, to), generate


def _sum_of(builder: Any, block: Any) -> Any:
    """Return the sum of a block's numbers."""
    add = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(_SINGLE, [_SINGLE, _BLOCK]),
        f"llvm.vector.reduce.fadd.v{BLOCK}f32",
    )
    return builder.call(add, [ir.Constant(_SINGLE, 0.0), block], fastmath=_FAST)


def _places(builder: Any, left: Any, right: Any, places: Sequence[int]) -> Any:
    """Return the numbers at some places of two vectors, one after the other."""
    return builder.shuffle_vector(
        left, right, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), list(places))
    )


def _repeated(builder: Any, vector: Any, place: int, width: int) -> Any:
    """Return a vector of ``width`` times the number at one place of another."""
    return _places(builder, vector, vector, [place] * width)


def _spread(builder: Any, value: Any, width: int) -> Any:
    """Return a vector of ``width`` times one number in single precision."""
    empty = ir.Constant(ir.VectorType(_SINGLE, width), ir.Undefined)
    single = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    return _repeated(builder, single, 0, width)


def _add_products(builder: Any, total: Any, left: Any, right: Any) -> None:
    """Add the products of two vectors, number by number, to the vector that ``total`` points to."""
    product = builder.fmul(left, right, flags=_FAST)
    builder.store(builder.fadd(builder.load(total), product, flags=_FAST), total)


def _halves_added(builder: Any, vector: Any) -> Any:
    """Return a vector of half the size: its first half plus its second."""
    half = vector.type.count // 2
    parts = (_places(builder, vector, vector, range(at, at + half)) for at in (0, half))
    return builder.fadd(*parts, flags=_FAST)


@intrinsic
def four_dots(
    typing: Any,
    own: Any,
    table: Any,
    index: Any,
    first: Any,
    last: Any,
    column: Any,
    out: Any,
    to: Any,
) -> Any:
    """Write the products of ``own`` with columns of four lines, from ``column`` on, to ``out``.

    To ``out[to : to + 4]``, of the lines ``index[first : first + 4]``; beyond ``index[last]`` it is that
    line again. ``own`` is as long as some whole blocks.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        own_, table_, index_, first_, last_, column_, out_, to_ = _arguments(
            context, builder, signature, values
        )
        lines = []
        for k in range(4):
            place = builder.add(first_, ir.Constant(first_.type, k))
            place = builder.select(builder.icmp_signed("<", place, last_), place, last_)
            lines.append(index_.element(place))
        zero = ir.Constant(_BLOCK, [0.0] * BLOCK)
        totals = [cgutils.alloca_once_value(builder, zero) for _ in lines]
        length = builder.extract_value(own_.view.shape, 0)
        block = ir.Constant(length.type, BLOCK)
        with cgutils.for_range(builder, builder.udiv(length, block)) as loop:
            at = builder.mul(loop.index, block)
            mine, place = own_.load(_BLOCK, at), builder.add(at, column_)
            for line, total in zip(lines, totals, strict=True):
                _add_products(builder, total, mine, table_.load(_BLOCK, line, place))
        # What is left of each is four numbers; those of all are added up side by side.
        left = [_halves_added(builder, _halves_added(builder, builder.load(total))) for total in totals]
        first, second = (
            builder.fadd(
                _places(builder, x, y, (0, 1, 4, 5)), _places(builder, x, y, (2, 3, 6, 7)), flags=_FAST
            )
            for x, y in (left[:2], left[2:])
        )
        even = _places(builder, first, second, (0, 2, 4, 6))
        odd = _places(builder, first, second, (1, 3, 5, 7))
        out_.store(builder.fadd(even, odd, flags=_FAST), to_)
        return context.get_dummy_value()

    return types.void(own, table, index, first, last, column, out, to), generate


@intrinsic
def weighted_sum(
    typing: Any,
    weights: Any,
    count: Any,
    table: Any,
    index: Any,
    first: Any,
    column: Any,
    width: Any,
    out: Any,
) -> Any:
    """Write a weighted sum of lines to ``out``: of their ``width`` columns from ``column`` on.

    The sum of ``weights[k] table[index[first + k], column : column + width]`` over ``k < count``. The
    width is one of whole blocks. One block's sum waits for itself, answer by answer; five side by side do
    not take longer. Each column is summed in the order of the answers.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        weights_, count_, table_, index_, first_, column_, width_, out_ = _arguments(
            context, builder, signature, values
        )

        def columns(number: int, begin: Any) -> None:
            zero = ir.Constant(_BLOCK, [0.0] * BLOCK)
            places = [builder.add(begin, ir.Constant(begin.type, at)) for at in range(0, number, BLOCK)]
            totals = [cgutils.alloca_once(builder, _BLOCK) for _ in places]
            for total in totals:
                builder.store(zero, total)
            with cgutils.for_range(builder, count_) as loop:
                line = index_.element(builder.add(first_, loop.index))
                spread = _spread(builder, weights_.element(loop.index), BLOCK)
                for place, total in zip(places, totals, strict=True):
                    block = table_.load(_BLOCK, line, builder.add(column_, place))
                    _add_products(builder, total, spread, block)
            for place, total in zip(places, totals, strict=True):
                out_.store(builder.load(total), place)

        several, one = (ir.Constant(width_.type, number) for number in (WIDE, BLOCK))
        whole = builder.mul(builder.udiv(width_, several), several)
        with cgutils.for_range_slice(builder, ir.Constant(whole.type, 0), whole, several) as (at, _):
            columns(WIDE, at)
        with cgutils.for_range_slice(builder, whole, width_, one) as (at, _):
            columns(BLOCK, at)
        return context.get_dummy_value()

    return types.void(weights, count, table, index, first, column, width, out), generate


@intrinsic
def subtract_products(
    typing: Any,
    out: Any,
    at: Any,
    left: Any,
    left_at: Any,
    left_step: Any,
    right: Any,
    right_at: Any,
    right_step: Any,
    count: Any,
) -> Any:
    """Subtract, in all lanes, the sum of ``count`` products of numbers that stand ``step`` apart."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        out_, at_, left_, left_at_, left_step_, right_, right_at_, right_step_, count_ = _arguments(
            context, builder, signature, values
        )
        total = cgutils.alloca_once_value(builder, out_.load(_LANES, at_))
        with cgutils.for_range(builder, count_) as loop:
            first = left_.load(_LANES, builder.add(left_at_, builder.mul(loop.index, left_step_)))
            second = right_.load(_LANES, builder.add(right_at_, builder.mul(loop.index, right_step_)))
            product = builder.fmul(first, second, flags=_FAST)
            builder.store(builder.fsub(builder.load(total), product, flags=_FAST), total)
        out_.store(builder.load(total), at_)
        return context.get_dummy_value()

    return types.void(out, at, left, left_at, left_step, right, right_at, right_step, count), generate


@intrinsic
def weighted_products16(
    typing: Any,
    weights: Any,
    count: Any,
    table: Any,
    index: Any,
    first: Any,
    row: Any,
    column: Any,
    out: Any,
) -> Any:
    """Write a tile of a weighted sum of outer products of lines to ``out``, four rows of sixteen.

    The sum of ``weights[k] line[row : row + 4] line[column : column + 16]'`` with
    ``line = table[index[first + k]]`` over ``k < count``.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        weights_, count_, table_, index_, first_, row_, column_, out_ = _arguments(
            context, builder, signature, values
        )
        zero = ir.Constant(_BLOCK, [0.0] * BLOCK)
        totals = [cgutils.alloca_once_value(builder, zero) for _ in range(TILE)]
        few = ir.VectorType(_SINGLE, TILE)
        with cgutils.for_range(builder, count_) as loop:
            line = index_.element(builder.add(first_, loop.index))
            spread = _spread(builder, weights_.element(loop.index), TILE)
            left = builder.fmul(spread, table_.load(few, line, row_), flags=_FAST)
            right = table_.load(_BLOCK, line, column_)
            for k, total in enumerate(totals):
                _add_products(builder, total, _repeated(builder, left, k, BLOCK), right)
        for k, total in enumerate(totals):
            out_.store(builder.load(total), ir.Constant(ir.IntType(64), k * BLOCK))
        return context.get_dummy_value()

    return types.void(weights, count, table, index, first, row, column, out), generate
