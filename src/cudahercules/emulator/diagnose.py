"""From the message of the checking build to findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cudahercules.emulator import causes, findings
from cudahercules.emulator.emit.context import Site
from cudahercules.emulator.faults import (
    NOWHERE,
    demangled,
    fault_of,
    full_place,
    group_sentence,
    plain_name,
    shown_file,
    shown_place,
)
from cudahercules.emulator.findings import Finding, Place, ThreadGroup, Touch
from cudahercules.emulator.outcome import Dim3
from cudahercules.emulator.space import Space
from cudahercules.emulator.translation import Built

Message = dict[str, Any]
_Pair = findings.SharedRace | findings.MissingWait | findings.MissingFence


class Diagnosis:
    """Reads one run's message. ``limit`` says in words what ended a run that did not end."""

    def __init__(self, message: Message, space: Space, modules: Sequence[Built], limit: str):
        self.message, self.space, self.limit = message, space, limit
        self._modules = modules
        self._sites = [module.sites() for module in modules]

    def conflicts(self) -> list[Finding]:
        """Races, missing waits and fences, and early uses of mbarriers, one for each pair of lines."""
        entries = self.message.get("findings", ())
        # What happens between warps says more than what happens within one.
        pairs = [e for e in entries if e["kind"] == "conflict"]
        found: list[_Pair] = [self._conflict(e) for e in sorted(pairs, key=lambda e: e["same_warp"])]
        found += [self._unfenced(e) for e in entries if e["kind"] == "unfenced"]
        unfinished = [self._unfinished(e) for e in entries if e["kind"] == "unfinished"]
        early = [self._early_use(e) for e in entries if e["kind"] == "early_use"]
        return [*_one_a_pair(found), *unfinished[:1], *_one_each(early)]

    def uninitialised(self) -> list[findings.UninitialisedRead]:
        """Reads of what nothing had written, one a line, whether the answer depends on them or not."""
        merged: dict[tuple[object, ...], findings.UninitialisedRead] = {}
        for entry in self.message.get("findings", ()):
            if entry["kind"] != "uninitialised":
                continue
            found = self._uninitialised(entry)
            key = (found.memory, found.name, found.place.file, found.place.line)
            known = merged.get(key)
            if known is not None:
                found = known.model_copy(update={"count": known.count + found.count})
            merged[key] = found
        return list(merged.values())

    def unwritten(self) -> Iterator[findings.UnwrittenOutput]:
        """Outputs that were not written everywhere."""
        for entry in self.message.get("unwritten", ()):
            region = self.space.holding(entry["address"], 1)
            if region is None or region.role != "output":
                continue
            text = (
                f"{entry['count']} of {region.size} bytes of output '{region.name}' were never written, the "
                f"first at byte {entry['first']}"
            )
            yield findings.UnwrittenOutput(
                message=text,
                cause=causes.UNWRITTEN,
                place=Place(),
                output=region.name,
                offset=entry["first"],
                missing=entry["count"],
                extent=region.size,
            )

    def ending(self) -> Finding | None:
        """What ended the run before its end."""
        message = self.message
        if message["kind"] == "out_of_fuel":
            place = self._place(message)
            where = f"; most of it was spent {_where(place)}" if place.line else ""
            return findings.OutOfFuel(
                message=f"kernel {place.kernel} did not end within {self.limit}{where}",
                cause=causes.OUT_OF_FUEL,
                place=place,
                limit=self.limit,
            )
        return self._fault() if message["kind"] == "fault" else None

    # --- places ----------------------------------------------------------------------------------

    def _site(self, module: int, number: int) -> Site:
        sites = self._sites[module]
        return sites[number] if number < len(sites) else NOWHERE

    def _place(self, message: Message, module: int | None = None, kernel: str | None = None) -> Place:
        number = message.get("module", 0) if module is None else module
        site = self._site(number, message["site"])
        return Place(
            kernel=demangled(kernel if kernel is not None else message["kernel"]),
            block=_dim3(message.get("block")),
            thread=_dim3(message.get("thread")),
            file=shown_file(site.file),
            line=site.line,
            instruction=site.instruction,
            inner=shown_place(site.inner) if site.inner else "",
            callers=tuple(map(shown_place, site.callers)),
        )

    def _touch(self, entry: Message, touch: Message) -> Touch:
        place = self._place(touch, entry["module"], entry["kernel"])
        return Touch(work=touch["work"], touch=touch["touch"], place=place)

    # --- kinds -----------------------------------------------------------------------------------

    def _conflict(self, entry: Message) -> findings.SharedRace | findings.MissingWait:
        first, second = self._touch(entry, entry["first"]), self._touch(entry, entry["second"])
        asynchronous = [t for t in (first, second) if t.work in causes.ASYNCHRONOUS]
        known: dict[str, Any] = {
            "cause": causes.of_conflict(first, second, entry["same_warp"]),
            "place": second.place,
            "offset": entry["offset"],
            "size": entry["size"],
            "first": first,
            "second": second,
            "count": entry["count"],
        }
        what = self._bytes(entry)
        pair = f"{_touch_words(first, second)}, and {_touch_words(second, first)}: nothing orders the two"
        if asynchronous:
            return findings.MissingWait(message=f"missing wait: {what} {pair}", **known)
        return findings.SharedRace(message=f"race: {what} {pair}", **known)

    def _unfinished(self, entry: Message) -> findings.MissingWait:
        place = self._place(entry)
        return findings.MissingWait(
            message=f"missing wait: an accumulator of wgmma is read {_where(place)} by {_who(place)}, and "
            "its product has not been waited for",
            cause=causes.UNFINISHED,
            place=place,
            count=entry["count"],
        )

    def _unfenced(self, entry: Message) -> findings.MissingFence:
        first, second = self._touch(entry, entry["first"]), self._touch(entry, entry["second"])
        return findings.MissingFence(
            message=f"missing fence: {self._bytes(entry)} {_touch_words(first, second)}, and "
            f"{_touch_words(second, first)}, which need not see it",
            cause=causes.UNFENCED,
            place=second.place,
            offset=entry["offset"],
            size=entry["size"],
            first=first,
            second=second,
            count=entry["count"],
        )

    def _bytes(self, entry: Message) -> str:
        """``byte 56 of shared memory (tile + 56)``."""
        module, kernel, offset = entry["module"], entry["kernel"], entry["offset"]
        for name, start, size in self._modules[module].shared.get(kernel, ()):
            if start <= offset < start + size:
                inside = f" + {offset - start}" if offset > start else ""
                return f"byte {offset} of shared memory ({plain_name(name)}{inside})"
        return f"byte {offset} of shared memory"

    def _early_use(self, entry: Message) -> findings.MbarrierMisuse:
        init, use = self._touch(entry, entry["first"]), self._touch(entry, entry["second"])
        return findings.MbarrierMisuse(
            message=f"the mbarrier at {self._bytes(entry)} is used {_where(use.place)} by "
            f"{_who(use.place)}, but {_who(init.place)} initialises it {_where(init.place)} and nothing "
            "orders the two",
            cause=causes.EARLY_USE,
            place=use.place,
            other=init.place,
        )

    def _uninitialised(self, entry: Message) -> findings.UninitialisedRead:
        place = self._place(entry)
        name, offset = "", entry["at"]
        where = self._bytes({**entry, "offset": offset})
        if entry["space"] == "global":
            region = self.space.holding(entry["at"], 1)
            if region is not None:
                name, offset = region.name, entry["at"] - region.address
                where = f"byte {offset} of '{name}'"
        return findings.UninitialisedRead(
            message=f"{where} is read {_where(place)} by {_who(place)}, and nothing has written it",
            cause=causes.UNINITIALISED[entry["space"]],
            place=place,
            memory=entry["space"],
            name=name,
            offset=offset,
            size=entry["size"],
            count=entry["count"],
        )

    def _fault(self) -> Finding:
        message = self.message
        what = message["what"]
        sites = self._sites[message["module"]]
        fault = fault_of(message, self.space, sites)
        known: dict[str, Any] = {
            "message": fault.message,
            "cause": fault.cause,
            "place": self._place(message),
        }
        groups = tuple(self._group(g) for g in message.get("groups", ()))
        match what:
            case "out_of_bounds" | "misaligned":
                return self._access(known)
            case "deadlock":
                known["place"] = groups[0].place
                return findings.Deadlock(alive=message["alive"], total=message["of"], groups=groups, **known)
            case "barrier_divergence":
                other = self._place({**message, "site": message["other"], "thread": None})
                return findings.BarrierDivergence(barrier=message["barrier"], other=other, **known)
            case "mismatched_mask":
                return findings.MismatchedMask(mask=message.get("mask"), groups=groups, **known)
            case "mbarrier_misuse":
                copy = None
                if "other" in message:
                    copy = self._place({**message, "site": message["other"], "thread": None})
                return findings.MbarrierMisuse(other=copy, **known)
            case "missing_wait":
                return findings.MissingWait(**known)
        return findings.OtherFault(what=what, **known)

    def _group(self, group: Message) -> ThreadGroup:
        first = group["threads"][0][0]
        place = self._place({**self.message, "site": group["site"], "thread": first, "block": None})
        return ThreadGroup(
            count=group["count"],
            wait=group["wait"],
            message=group_sentence(group, self._sites[self.message["module"]]),
            place=place,
            threads=tuple(tuple(_dim3(t) for t in run) for run in group["threads"]),  # type: ignore[misc]
        )

    def _access(self, known: dict[str, Any]) -> Finding:
        message = self.message
        known["access"] = ("read", "write", "atomic operation")[message["access"]]
        known["size"] = size = message["size"]
        if message["space"] == "global":
            region = self.space.nearest(message["address"], size)
            known["offset"] = message["address"] - (region.address if region else 0)
            known["memory"] = "unknown"
            if region is not None:
                known["memory"] = "buffer" if region.kind == "b" else "variable"
                known |= {"name": region.name, "extent": region.size}
        else:
            known["memory"] = "parameters" if message["space"] == "param" else message["space"]
            known["offset"] = message.get("offset", message.get("address", 0))
            known["extent"] = message.get("limit")
        if message["what"] == "misaligned":
            return findings.Misaligned(**known)
        return findings.OutOfBounds(distance=_distance(known["offset"], size, known.get("extent")), **known)


def _distance(offset: int, size: int, extent: int | None) -> int:
    """How many bytes before the start or behind the end the access reaches."""
    if offset < 0:
        return -offset
    return max(0, offset + size - extent) if extent is not None else 0


def _dim3(values: Sequence[int] | None) -> Dim3 | None:
    return None if values is None else (values[0], values[1], values[2])


def _where(place: Place) -> str:
    site = Site("", place.file, place.line, "", place.inner, place.callers)
    return f"at {full_place(site)}" if place.line else f"by [{place.instruction.rstrip(';')}]"


def _who(place: Place) -> str:
    return "thread " + ",".join(map(str, place.thread or (0, 0, 0)))


_DONE = {"read": "is read", "write": "is written"}
_WORK = {
    "cp.async": "cp.async",
    "bulk_copy": "a bulk copy",
    "bulk_store": "a bulk store",
    "wgmma": "wgmma",
}


def _touch_words(touch: Touch, other: Touch) -> str:
    """``is read at k.cu:12 by thread 3,0,0``; asynchronous work is issued there. Names the block where
    ``other`` is of another one."""
    who = _who(touch.place)
    if touch.place.block != other.place.block:
        who += " of block " + ",".join(map(str, touch.place.block or (0, 0, 0)))
    if touch.work in _WORK:
        return f"{_DONE[touch.touch]} by {_WORK[touch.work]} that {who} issues {_where(touch.place)}"
    return f"{_DONE[touch.touch]} {_where(touch.place)} by {who}"


def _one_a_pair(found: list[_Pair]) -> list[_Pair]:
    """The first for each pair of lines (whichever comes first of both), with how often all were seen."""
    merged: dict[tuple[object, ...], _Pair] = {}
    for finding in found:
        assert finding.first is not None and finding.second is not None
        lines = frozenset((t.work, t.place.file, t.place.line) for t in (finding.first, finding.second))
        known = merged.get((finding.kind, lines))
        if known is not None:
            finding = known.model_copy(update={"count": known.count + finding.count})
        merged[finding.kind, lines] = finding
    return list(merged.values())


def _one_each(found: list[findings.MbarrierMisuse]) -> list[findings.MbarrierMisuse]:
    """The first for each initialisation: one mistake is seen wherever the object is used."""
    first: dict[tuple[str, int], findings.MbarrierMisuse] = {}
    for finding in found:
        assert finding.other is not None
        first.setdefault((finding.other.file, finding.other.line), finding)
    return list(first.values())
