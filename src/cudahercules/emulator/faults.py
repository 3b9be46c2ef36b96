"""What the host program reports, as outcomes with sentences for a person."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from cudahercules.emulator import causes
from cudahercules.emulator.emit.context import FUNCTION_BASE, Site
from cudahercules.emulator.outcome import Dim3, Fault
from cudahercules.emulator.space import Space

NOWHERE = Site("", "", 0, "")
_ACCESS = ("read", "write", "atomic operation")
_WHERE_FROM = ("from", "to", "on")


@lru_cache(maxsize=256)
def demangled(name: str) -> str:
    """A C++ name as written in the source (without parameters), or ``name`` itself."""
    return _demangled_whole(name).split("(", 1)[0].removeprefix("void ")


def _demangled_whole(name: str) -> str:
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        pointer = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if not pointer:
            return name
        text = ctypes.string_at(pointer).decode(errors="replace")
        ctypes.CDLL(None).free(ctypes.c_void_p(pointer))
    except OSError:
        return name
    return text


def plain_name(name: str) -> str:
    """A variable of a function as the source calls it: ``tile`` for ``_ZZ6kernelPfE4tile``."""
    if not name.startswith("_Z"):
        return name
    whole = _demangled_whole(name)
    return whole.rpartition("::")[2] or whole


def source_place(site: Site) -> str:
    """``file.cu:12``, or nothing where no line is known."""
    return f"{shown_file(site.file)}:{site.line}" if site.line else ""


def full_place(site: Site) -> str:
    """The same with what was inlined there and where that line itself was inlined:
    ``file.cu:12 (in sync.h:80, called at file.cu:40)``."""
    more = [f"in {shown_place(site.inner)}"] if site.inner else []
    if site.callers:
        more.append("called at " + ", ".join(map(shown_place, site.callers)))
    place = source_place(site)
    return f"{place} ({', '.join(more)})" if place and more else place


def shown_place(place: str) -> str:
    """``/tmp/x/file.cu:12`` without its directory."""
    file, _, line = place.rpartition(":")
    return f"{shown_file(file)}:{line}"


def shown_file(file: str) -> str:
    """The candidate's own file name: builds happen in temporary directories."""
    return PurePath(file).name if file.startswith("/") else file


def fault_of(message: dict[str, Any], space: Space, sites: list[Site]) -> Fault:
    """The Fault that the host's message ``{"kind": "fault", ...}`` describes."""
    site = sites[message["site"]] if message["site"] < len(sites) else NOWHERE
    block, thread = _dim3(message["block"]), _dim3(message["thread"])
    kernel = demangled(message["kernel"])
    place = full_place(site)
    groups = tuple(group_sentence(g, sites) for g in message.get("groups", ()))
    text = _sentence(message, space, sites)
    text += f": kernel {kernel}, block {block[0]},{block[1]},{block[2]}"
    if "groups" not in message:
        text += f", thread {thread[0]},{thread[1]},{thread[2]}"
    if place:
        text += f", at {place}"
    if site.instruction:
        text += f" [{site.instruction.rstrip(';')}]"
    return Fault(
        what=message["what"],
        message=text,
        cause=_cause(message, space),
        kernel=kernel,
        block=block,
        thread=None if "groups" in message else thread,
        file=shown_file(site.file),
        line=site.line,
        callers=tuple(map(shown_place, site.callers)),
        instruction=site.instruction,
        threads=groups,
        printed=message.get("printed", ""),
    )


def _cause(message: dict[str, Any], space: Space) -> str:
    what = message["what"]
    if what == "out_of_bounds" and message["space"] == "global":
        address, size = message["address"], message["size"]
        if space.holding(address, size) is not None:
            what = "read_only"
        elif address < 1 << 16 and space.nearest(address, size) is None:
            what = "null"
    return causes.OF_FAULT.get(what, "")


def _dim3(values: list[int]) -> Dim3:
    return (values[0], values[1], values[2])


def _sentence(message: dict[str, Any], space: Space, sites: list[Site]) -> str:
    match message["what"]:
        case "out_of_bounds" | "misaligned":
            return _memory(message, space)
        case "deadlock":
            return (
                f"deadlock: none of the {message['alive']} living threads (of {message['of']}) can go on: "
                + "; ".join(group_sentence(g, sites) for g in message["groups"])
            )
        case "mismatched_mask":
            if message.get("own"):
                return f"a thread is not in the lane mask {message['mask']:#010x} that it names itself"
            return "lanes of a warp wait for each other with different masks or instructions: " + "; ".join(
                group_sentence(g, sites) for g in message["groups"]
            )
        case "barrier_divergence":
            other = source_place(sites[message["other"]]) or "another instruction"
            return (
                f"threads of one warp meet at barrier {message['barrier']} from two places, "
                f"this one and {other}: a barrier in divergent code"
            )
        case "mbarrier_misuse" if "other" in message:
            place = source_place(sites[message["other"]])
            return message["detail"] + (f"; the copy was issued at {place}" if place else "")
        case "trap":
            return "the kernel executed a trap"
        case "assertion":
            return (
                f"assertion `{message['assertion']}` failed in {message['assert_function']} "
                f"({shown_file(message['assert_file'])}:{message['assert_line']})"
            )
        case "invalid_function":
            return message.get("detail") or f"call of {message['address']:#x}, which is no device function"
        case "stack_overflow":
            return "stack overflow: recursion too deep or local memory too large"
        case _:
            return message.get("detail", message["what"])


def _memory(message: dict[str, Any], space: Space) -> str:
    access, size = message["access"], message["size"]
    verb, preposition = _ACCESS[access], _WHERE_FROM[access]
    head = "misaligned" if message["what"] == "misaligned" else "out-of-bounds"
    kind = message["space"]
    if kind in ("shared", "local"):
        offset = message.get("offset", message.get("address"))
        limit = message.get("limit")
        memory = f"{kind} memory"
        if "rank" in message:
            memory += f" in block {message['rank']} of the cluster"
        if limit is not None:
            extent = f"{limit} bytes of {memory}"
            if kind == "shared" and message.get("dynamic"):
                extent += f", {message['dynamic']} of them dynamic"
            return f"{head} {size}-byte {verb} at byte {offset} ({extent})"
        return f"{head} {size}-byte {verb} at byte {offset} of {memory}"
    if kind == "param":
        offset = message.get("address")
        return f"{head} {size}-byte {verb} at byte {offset} of the kernel's parameters"
    address = message["address"]
    if message["what"] == "misaligned":
        return f"misaligned {size}-byte {verb} {space.describe(address, size)} (address {address:#x})"
    region = space.holding(address, size)
    if region is not None and not region.writable and access:
        what = "input buffer" if region.kind == "b" else "constant variable"
        return f"out-of-bounds {size}-byte {verb}: {what} '{region.name}' is read-only"
    if FUNCTION_BASE <= address < FUNCTION_BASE + (1 << 40):
        return f"out-of-bounds {size}-byte {verb} {preposition} a device function's address"
    return f"out-of-bounds {size}-byte {verb} {space.describe(address, size)}"


_WAITS = {
    "barrier": "wait at barrier {detail}",
    "lanes": "wait for the lanes of mask {detail:#010x}",
    "activemask": "wait in activemask",
    "cluster": "wait at the cluster's barrier",
    "mbarrier": "wait on the mbarrier at byte {offset} of shared memory for the phase of parity {detail}",
    "warpgroup": "wait for products of wgmma that other warps of the warpgroup have not issued",
    "running": "run",
}


def group_sentence(group: dict[str, Any], sites: list[Site]) -> str:
    """``32 threads wait at barrier 0 at x.cu:9: (0,0,0)-(31,0,0)``."""
    site = sites[group["site"]] if group["site"] < len(sites) else NOWHERE
    runs = [
        _thread(first) if first == last else f"{_thread(first)}-{_thread(last)}"
        for first, last in group["threads"][:8]
    ]
    if len(group["threads"]) > 8:
        runs.append("...")
    count = group["count"]
    waits = _WAITS[group["wait"]].format(
        detail=group["detail"], offset=group.get("mbarrier", {}).get("offset", 0)
    )
    if count == 1:
        waits = waits.replace("wait ", "waits ", 1)
    place = f" at {source_place(site)}" if site.line else ""
    block = f" of block {group['rank']} of the cluster" if "rank" in group else ""
    state = f" ({_missing(group['mbarrier'])})" if "mbarrier" in group else ""
    return f"{count} thread{'s' if count > 1 else ''}{block} {waits}{state}{place}: {', '.join(runs)}"


def _missing(barrier: dict[str, int]) -> str:
    """What the current phase of an mbarrier waits for."""
    arrivals = f"{barrier['missing']} of {barrier['expected']} arrivals missing"
    if barrier["bytes"] < 0:
        return f"{arrivals}, {-barrier['bytes']} bytes came that no expect_tx announced"
    return f"{arrivals}, {barrier['bytes']} bytes missing"


def _thread(tid: list[int]) -> str:
    return f"({tid[0]},{tid[1]},{tid[2]})"
