"""The messages between a judge and a GPU process, and how they travel.

A message is a JSON object behind a four-byte length, over a Unix socket; file descriptors go along
with the message that speaks of them. The child is ours (no candidate host code runs in it), but its
answers are validated like any input.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from cudahercules.record.plan import DeviceAnswer
from cudahercules.replay.interface import Ready, Request, Sample
from cudahercules.task.model import Model

LONGEST = 1 << 30
"""Bytes of one message at most (a plan with large captured uploads is the longest)."""
_HEADER = struct.Struct("<I")


# --- from judge to child -------------------------------------------------------------------------


class Begin(Model):
    """Make the context: the first order to a process that was started without one."""

    do: Literal["begin"] = "begin"


class Load(Model):
    """Take on a plan (candidate) or an expert. Paths are absolute; JSON texts are model dumps.
    ``step`` runs the plan launch by launch, announcing each, instead of building a graph."""

    do: Literal["load"] = "load"
    task: str
    workload: str
    kernels: str  # cubin of generator.cu for this device
    plan: str = ""
    artifact: str = ""
    expert: str = ""
    step: bool = False
    seed: int = 0


class Run(Model):
    do: Literal["run"] = "run"
    requests: tuple[Request, ...]


class Hand(Model):
    """Hand over the outputs of kept sample ``kept``: the answer carries one file descriptor."""

    do: Literal["hand"] = "hand"
    kept: int


class Release(Model):
    do: Literal["release"] = "release"
    kept: int


class Rest(Model):
    """Give back what the last load holds on the device; the process stays for the next one."""

    do: Literal["rest"] = "rest"


class End(Model):
    do: Literal["end"] = "end"


Order = Annotated[Begin | Load | Run | Hand | Release | Rest | End, Field(discriminator="do")]
ORDER: TypeAdapter[Begin | Load | Run | Hand | Release | Rest | End] = TypeAdapter(Order)


# --- from child to judge -------------------------------------------------------------------------


class Alive(Model):
    """The context is made; ``load`` may come."""

    said: Literal["alive"] = "alive"
    device: str
    capability: tuple[int, int]
    pid: int


class Loaded(Model):
    said: Literal["loaded"] = "loaded"
    ready: Ready


class At(Model):
    """While stepping: operation ``position`` of ``part`` is about to run."""

    said: Literal["at"] = "at"
    part: Literal["prepare", "solve"]
    position: int


class Stepped(Model):
    said: Literal["stepped"] = "stepped"


class Samples(Model):
    said: Literal["samples"] = "samples"
    samples: tuple[Sample, ...]


class Piece(Model):
    """Where one output lies in the memory that is handed over."""

    name: str
    offset: int
    size: int


class Handed(Model):
    """``kind`` says what the file descriptor is: a device allocation or host memory."""

    said: Literal["handed"] = "handed"
    kind: Literal["device", "host"]
    size: int
    pieces: tuple[Piece, ...]


class Done(Model):
    said: Literal["done"] = "done"


class Failed(Model):
    """``why``: ``device`` (a CUresult in ``code``), ``cannot`` (the plan does not fit), ``answers``,
    ``machine`` (memory, driver, packages), ``expert`` (its Python code raised), ``declined`` (it does
    not do this workload). After ``answers`` and ``declined`` the process takes further orders."""

    said: Literal["failed"] = "failed"
    why: Literal["device", "cannot", "answers", "machine", "expert", "declined"]
    message: str
    code: int = 0
    answers: tuple[DeviceAnswer, ...] = ()


Answer = Annotated[
    Alive | Loaded | At | Stepped | Samples | Handed | Done | Failed, Field(discriminator="said")
]
ANSWER: TypeAdapter[Any] = TypeAdapter(Answer)


# --- transport -----------------------------------------------------------------------------------


class ExpertFailed(Exception):
    """In an expert's process: its Python code raised, or returned what cannot be used."""


class Declines(ExpertFailed):
    """In an expert's process: its code says that it does not do this workload."""


class TooLarge(ExpertFailed):
    """In an expert's process: the GPU has too little free memory for it."""


class Closed(Exception):
    """The other side has gone."""


class Channel:
    """One end of the socket. Times are absolute seconds of :func:`time.monotonic`."""

    def __init__(self, sock: socket.socket):
        self.socket = sock

    def send(self, message: Model, descriptors: Sequence[int] = ()) -> None:
        """Send one message. Raises Closed if nobody listens."""
        data = message.model_dump_json().encode()
        if len(data) > LONGEST:
            raise ValueError(f"a message of {len(data)} bytes is longer than {LONGEST}")
        self.socket.settimeout(None)
        try:
            socket.send_fds(self.socket, [_HEADER.pack(len(data))], list(descriptors))
            self.socket.sendall(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, deadline: float | None = None) -> tuple[Any, list[int]]:
        """The next message as a dict, and the descriptors that came with it.

        Raises TimeoutError past ``deadline`` and Closed at the end of the stream."""
        header, descriptors = self._read_header(deadline)
        try:
            (length,) = _HEADER.unpack(header)
            if length > LONGEST:
                raise Closed(f"a message of {length} bytes was announced")
            return json.loads(self._read(length, deadline)), descriptors
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def _wait(self, deadline: float | None) -> None:
        if deadline is None:
            self.socket.settimeout(None)
        else:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)

    def _read_header(self, deadline: float | None) -> tuple[bytes, list[int]]:
        self._wait(deadline)
        try:
            header, descriptors, _, _ = socket.recv_fds(self.socket, _HEADER.size, 4)
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from error
        if not header:
            raise Closed("end of stream")
        return header + self._read(_HEADER.size - len(header), deadline), list(descriptors)

    def _read(self, count: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._wait(deadline)
            try:
                chunk = self.socket.recv(min(1 << 20, count - len(data)))
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(str(error)) from error
            if not chunk:
                raise Closed("end of stream")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        self.socket.close()
