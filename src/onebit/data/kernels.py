"""Compiled functions that are kept on disk, as long as the disk lets them, and that are whole.

numba keeps what it has compiled in files, where a later process finds it. A disk that is full, a folder
that may not be written to or a file that was cut short must not end a fit: the function is then compiled
again. One line on standard error says so where it cannot be kept.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from llvmlite.binding import Linkage
from numba.core import config
from numba.core.caching import FunctionCache, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.sigutils import normalize_signature
from numpy.typing import NDArray

# Else numba also makes a version of every function that C code could call; there is none.
_NO_MORE_THAN_NEEDED = {"no_cfunc_wrapper": True}
_OWN, _SHARED = Linkage.external, Linkage.linkonce_odr
_ADVICE = "it is compiled again in every process; NUMBA_CACHE_DIR names another folder"


class _Teller:
    """Says once why nothing is kept."""

    def __init__(self) -> None:
        self.told = False

    def tell(self, why: str) -> None:
        if not self.told and sys.stderr is not None:
            sys.stderr.write(f"onebit: what was compiled cannot be kept ({why}): {_ADVICE}\n")
            sys.stderr.flush()
        self.told = True


_TELLER = _Teller()


class _Kept(FunctionCache):
    """What was compiled of one function, in files."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Tell apart what was compiled under other settings, whose bits may be others."""
        flags = config.BOUNDSCHECK, config.LOOP_VECTORIZE, config.SLP_VECTORIZE
        settings = int(config.OPT), *map(bool, flags), os.environ.get("ONEBIT_PLAIN_LOOPS", "")
        return (*super()._index_key(sig, codegen), settings)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
            if found is not None and not self._holds(found, sig):
                raise ValueError("it is of another function, or for other arguments")
            return found
        except Exception:  # a damaged file can be wrong in any way
            with suppress(OSError):
                self.flush()  # what the files hold is forgotten, and they are written again
            return None

    def _holds(self, found: Any, sig: Any) -> bool:
        """Say whether this function was compiled for these arguments: processes may save at once."""
        name = found.fndesc.modname, found.fndesc.qualname
        own = self._py_func.__module__, self._py_func.__qualname__
        return name == own and tuple(found.signature.args) == tuple(normalize_signature(sig)[0])

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _TELLER.tell(f"{self.cache_path}: {error}")


class _NotKept(NullCache):
    """Stands in where no folder may be written to."""

    def save_overload(self, sig: Any, cres: Any) -> None:
        _TELLER.tell("no folder for it may be written to")


class _Whole(JITCodeLibrary):
    """The code of a kernel and of all that it calls, whatever else a process has compiled or loaded.

    What it calls has names of its own. Else a call that was not inlined goes to the first function of
    that name in the process: that of another kernel, say, where the compiler has rounded otherwise. Under
    one seed the first fit in an environment, which compiles, would differ from later ones in its last
    digits, and a chain would be another chain.
    """

    def _optimize_final_module(self) -> None:
        own = [function.name for function in self._final_module.functions if function.linkage == _OWN]
        mark = hashlib.sha256(" ".join(own).encode()).hexdigest()[:16]
        for function in self._final_module.functions:
            # numba looks for what counts references by its names.
            if function.linkage == _SHARED and not function.name.startswith("NRT_"):
                function.name = f"{function.name}.{mark}"
        super()._optimize_final_module()


class _Part(JITCodeLibrary):
    """The code of a function that kernels call: it is optimised there, with what is around it."""

    def _optimize_final_module(self) -> None:
        pass


class _KernelCompiler(Compiler):
    library = _Whole

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


class _PartCompiler(_KernelCompiler):
    library = _Part


def kernel(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function on its first call and keeps it on disk.

    The options are those of ``numba.njit``.
    """

    def decorated(function: Any) -> Any:
        made = numba.njit(pipeline_class=_KernelCompiler, **_NO_MORE_THAN_NEEDED, **options)(function)
        try:
            made._cache = _Kept(function)
        except RuntimeError:
            made._cache = _NotKept()
        return made

    return decorated


def within_kernels(**options: Any) -> Callable[[Any], Any]:
    """Return a decorator of a function that kernels call: what is kept on disk is part of theirs.

    The options are those of ``numba.njit``.
    """
    return numba.njit(pipeline_class=_PartCompiler, **_NO_MORE_THAN_NEEDED, **options)


def fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array through which nobody writes.

    Whether one may is a type: a kernel that is given now this, now that is compiled twice.

    Examples
    --------
    >>> import numpy as np
    >>> from onebit.data.kernels import fixed
    >>> fixed(np.arange(3)).flags.writeable
    False
    """
    same = array.view()
    same.setflags(write=False)
    return same


def worth_compiling(made: Any) -> bool:
    """Say whether another process could compile a kernel for this one: nobody has, and it can be kept."""
    return not made.signatures and isinstance(made._cache, _Kept) and not on_disk(made)


def on_disk(made: Any) -> bool:
    """Say whether a kernel that can be kept on disk is there."""
    try:
        return bool(made._cache._cache_file._load_index())
    except AttributeError:  # numba's own business, which may change
        return True
    except Exception:  # a damaged file
        return False
