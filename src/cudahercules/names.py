"""Names of kernels as their author wrote them."""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def demangled(name: str) -> str:
    """A mangled C++ name without its parameters; any other name, or any name where the C++ library
    is missing, as it is."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    demangle = library.__cxa_demangle
    demangle.restype, status = ctypes.c_void_p, ctypes.c_int()
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        readable = ctypes.string_at(text).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return without_parameters(readable)


def readable(text: str) -> str:
    """``text`` with every mangled C++ name in it demangled."""
    return re.sub(r"\b_Z\w{1,1000}\b", lambda found: demangled(found[0]), text)


def without_parameters(signature: str) -> str:
    """``void ns::f<(int)4>(float*)`` → ``ns::f<(int)4>``: the parentheses that count are outside ``<>``."""
    depth = 0
    for position, character in enumerate(signature):
        if character == "(" and depth == 0 and not signature.startswith("(anonymous namespace)", position):
            return signature[:position].removeprefix("void ")
        depth += (character == "<") - (character == ">")
    return signature.removeprefix("void ")
