"""A hint for kernels that wait for memory more than they compute: it changes their speed, never a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic


def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Returns the types and the code of ``ask_for``: LLVM's ``prefetch`` to read, into all caches."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, values[0])
        stride = builder.extract_value(made.strides, 0)
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(made.data, byte), [builder.mul(values[1], stride)])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = get_or_insert_function(builder.module, kind, 'llvm.prefetch.p0i8')  # type: ignore[no-untyped-call]  # numba has no annotations
        read, all_caches, data = number(0), number(3), number(1)
        builder.call(prefetch, [address, read, all_caches, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


ask_for = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
"""Asks for the cache line where a row of an array begins, without waiting for it; for kernels."""
