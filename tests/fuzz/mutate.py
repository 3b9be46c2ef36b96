"""Structure-aware changes of JSON-like trees: most results are still trees of nearly the right shape."""

from __future__ import annotations

import copy
import random
from typing import Any

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 8, 16, 31, 32, 33, 255, 256, 1024, 1025, 65535, 65536),
    *(
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**32,
        2**40,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        10**30,
    ),
    *(0.0, -0.0, 0.5, 1.5, 1e308, 1e-320, float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *(
        "",
        " ",
        "\0",
        "a",
        "A" * 5000,
        "../../etc/passwd",
        "/dev/zero",
        "{",
        "}",
        "{n}",
        "{n.__class__}",
        "{0}",
        "%s",
    ),
    *(
        "-1",
        "0x10",
        "1e999",
        "NaN",
        "null",
        "true",
        "\u202e",
        "\ud7ff",
        "\U0001f600",
        "n*n",
        "n**n**n",
        "2**99999",
    ),
    *(
        "kernel",
        "upload",
        "memset",
        "copy",
        "record",
        "wait",
        "solve",
        "prepare",
        "fp32",
        "bf16",
        "int64",
        "in",
        "out",
    ),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [{}], {"": None}, [0] * 300)
Place = tuple[Any, Any]
"""A container and the key or index in it."""


def places(tree: Any) -> list[Place]:
    """Every place in ``tree`` that holds something, the root apart."""
    found: list[Place] = []
    waiting = [tree]
    while waiting:
        at = waiting.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            found.append((at, key))
            if isinstance(at[key], (dict, list)):
                waiting.append(at[key])
    return found


def mutated(tree: Any, chance: random.Random) -> Any:
    """A copy of ``tree`` with one to four changes."""
    tree = copy.deepcopy(tree)
    for _ in range(min(4, 1 + int(chance.expovariate(1.2)))):
        found = places(tree)
        if not found:
            return tree
        chance.choice(_CHANGES)(chance.choice(found), found, chance)
    return tree


def _near(place: Place, found: list[Place], chance: random.Random) -> None:
    """A neighbouring value of the same type: what a careful forger would write."""
    at, key = place
    value = at[key]
    if isinstance(value, bool):
        at[key] = not value
    elif isinstance(value, int):
        step = chance.choice((1, -1, 2, 4, 8, 16, 256, -256, value, -value, value // 2))
        at[key] = value + step
    elif isinstance(value, float):
        at[key] = value * chance.choice((0.5, 2.0, -1.0, 1.0000001))
    elif isinstance(value, str) and value:
        cut = chance.randrange(len(value))
        at[key] = chance.choice(
            (value[:cut], value + value[cut:], value[:cut] + "x" + value[cut + 1 :], value.upper())
        )
    elif isinstance(value, list) and value:
        chance.choice((value.reverse, value.pop, lambda: value.append(copy.deepcopy(value[-1]))))()


def _extreme(place: Place, found: list[Place], chance: random.Random) -> None:
    at, key = place
    value = at[key]
    pool: tuple[Any, ...] = (
        TEXTS if isinstance(value, str) else NUMBERS if isinstance(value, (int, float)) else OTHERS
    )
    at[key] = copy.deepcopy(chance.choice(pool))


def _other_type(place: Place, found: list[Place], chance: random.Random) -> None:
    at, key = place
    at[key] = copy.deepcopy(chance.choice((*OTHERS, *NUMBERS, *TEXTS)))


def _remove(place: Place, found: list[Place], chance: random.Random) -> None:
    at, key = place
    del at[key]


def _graft(place: Place, found: list[Place], chance: random.Random) -> None:
    """What stands elsewhere in the tree comes here as well."""
    at, key = place
    other, there = chance.choice(found)
    try:
        at[key] = copy.deepcopy(other[there])
    except (KeyError, IndexError):
        return


def _like(place: Place, found: list[Place], chance: random.Random) -> None:
    """A value of the same type from elsewhere in the tree."""
    at, key = place
    same = [(o, k) for o, k in found if type(o[k]) is type(at[key])]
    other, there = chance.choice(same)
    at[key] = copy.deepcopy(other[there])


def _rename(place: Place, found: list[Place], chance: random.Random) -> None:
    at, key = place
    if isinstance(at, dict):
        names = [k for _, k in found if isinstance(k, str)]
        at[chance.choice((*names, *TEXTS))] = at.pop(key)
    else:
        at.insert(chance.randrange(len(at) + 1), copy.deepcopy(at[key]))


_CHANGES = (_near, _near, _near, _near, _like, _like, _extreme, _other_type, _remove, _graft, _rename)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """``data`` with some bytes changed, cut or repeated: for whoever parses the text itself."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        if not out:
            break
        at = chance.randrange(len(out))
        match chance.randrange(4):
            case 0:
                out[at] = chance.randrange(256)
            case 1:
                del out[at : at + chance.randrange(1, 30)]
            case 2:
                out[at:at] = out[at : at + chance.randrange(1, 30)]
            case 3:
                out[at:at] = chance.choice(
                    (b"[", b"{", b'"', b",", b"\0", b"\xff", b"9" * 40, b"\\u0000", b"1e9999")
                )
    return bytes(out)
