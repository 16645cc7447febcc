"""Compilation of loops over bytes, and the loads and copies that numba's arrays do not offer.

Compiled code is cached in ``NUMBA_CACHE_DIR``, or else below `cache_root`. Arrays are C-contiguous and writable.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numba
from llvmlite import ir
from numba import njit, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic

from harness.host.cache import alone_in, compiled_folder

if not numba.config.CACHE_DIR:  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(compiled_folder())  # type: ignore[attr-defined]

BYTES: Final = uint8[::1]

COMPILING_LIMIT_S: Final = 60.0
"""The time to wait while another process compiles a function, before this process compiles it, too."""

inlined: Callable[[Any], Any] = njit(inline="always")


def compiled(*signatures: object) -> Callable[[Any], Any]:
    """Compile a function for these signatures now, or load its compilation, also by a concurrent process."""

    def decorate(function: Any) -> Any:
        with alone_in(Path(numba.config.CACHE_DIR), COMPILING_LIMIT_S):  # type: ignore[attr-defined]
            return njit(list(signatures), cache=True, nogil=True, error_model="numpy")(function)

    return decorate


def _loader(integer_type: types.Integer) -> Any:
    """Return a function (array of bytes, place) -> integer in the machine's order, from any place."""

    @intrinsic
    def load(_context: Any, data: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            pointer_type = ir.PointerType(context.get_value_type(integer_type))
            return builder.load(builder.bitcast(builder.gep(array.data, [args[1]]), pointer_type), align=1)

        return integer_type(data, at), codegen

    return load


load_byte = _loader(types.uint8)
load_eight_bytes = _loader(types.uint64)


@intrinsic
def copy_bytes(_context: Any, out: Any, out_at: Any, data: Any, at: Any, size: Any) -> Any:
    """Copy ``size`` bytes of an array of bytes into another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2))
        cgutils.raw_memcpy(builder, builder.gep(target, [args[1]]), builder.gep(source, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(out, out_at, data, at, size), codegen
