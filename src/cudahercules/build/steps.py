"""nvcc's own steps for one file: asked for, checked, run, and explained when one fails.

``nvcc --dryrun`` prints the commands; they are run as nvcc would run them, with two differences.
Preprocessing comes first, so that the headers can be checked before any other stage prints a file's
content; and the source path that nvcc hashes into the names of ``static`` kernels is replaced by a
fixed one, so that equal sources give equal cubins wherever they are built.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudahercules.build import diagnostics, sandbox
from cudahercules.build.artifact import SOURCE_PREFIX
from cudahercules.build.candidate import GENERATED_HEADER
from cudahercules.build.diagnostics import WORKING_DIRECTORY, Refused
from cudahercules.build.includes import hidden_include, refused_include
from cudahercules.build.toolchain import Toolchain, accepts_host_compiler
from cudahercules.errors import MachineError
from cudahercules.process import Finished, Limits, run_limited
from cudahercules.task.model import LibraryPolicy

LINK_FLAGS = ("-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack")

_ASSEMBLER_READS = re.compile(
    r": Error: (?:file not found: (.+)|can't open (.+?) for reading:.*)$", re.MULTILINE
)
_KEPT_SUFFIXES = (".cubin", ".ptx", ".fatbin", ".o")
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|out of memory|virtual memory exhausted|[Cc]annot allocate memory"
    r"|Loop in catastrophic error processing"  # EDG's front end needs memory to say so
)


def compiler_flags(architecture: str) -> tuple[str, ...]:
    """What every candidate is compiled with; tasks and candidates cannot add to it."""
    return (
        "-std=c++17",
        "-O3",
        "-lineinfo",
        "-gencode",
        f"arch=compute_{architecture},code=sm_{architecture}",
        "-Xptxas",
        "-v",
        "-Xcompiler",
        f"-fPIC,-fmacro-prefix-map={WORKING_DIRECTORY}=",
    )


@dataclass
class Workshop:
    """A private directory in which one candidate is compiled. Its sources lie in ``source``; unit
    number N leaves its files in ``N``. ``limits.wall_s`` is for all steps together."""

    directory: Path
    toolchain: Toolchain
    architecture: str
    policy: LibraryPolicy
    library_directories: tuple[Path, ...]
    limits: Limits
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def sources(self) -> Path:
        return self.directory / "source"

    @property
    def temporary(self) -> Path:
        return self.directory / "tmp"

    def compile_unit(self, number: int, unit: str) -> str:
        """Compile the file ``unit`` into ``<number>/``: ``<stem>.cubin``, ``.ptx``, ``.fatbin`` and
        ``unit.o``. Returns what ptxas reported. Raises Refused."""
        output = self.directory / str(number)
        output.mkdir()
        commands, environment = self._steps(number, unit)
        self._run_steps([c for c in commands if " -E " in c], environment, unit, output)
        for text in sorted(output.glob("*.ii")):
            content = text.read_bytes()
            refusal = refused_include(
                content, self.sources, self.toolchain, self.policy, self.library_directories
            )
            if refusal is not None:
                raise Refused("contract", refusal)
            text.write_bytes(_with_fixed_paths(content))
        report = self._run_steps([c for c in commands if " -E " not in c], environment, unit, output)
        self._check_assembler_reads(output / "assembler.d")
        for left in output.iterdir():
            if left.suffix not in _KEPT_SUFFIXES:
                left.unlink()
        return report

    def link(self, objects: Sequence[str], unit: str) -> None:
        """Link ``host.so`` from ``objects``; names that it lacks are allowed. Raises Refused."""
        made = self.temporary / "host.so"
        argv = [str(self.toolchain.host_compiler), *LINK_FLAGS, "-o", str(made), *objects]
        environment = self.toolchain.environment(self.temporary)
        done = self._run(argv, self.directory, environment, self.temporary)
        if done.status != 0 or done.timed_out:
            raise self._explain(done, unit, "the linker", done.status, None)
        made.rename(self.directory / "host.so")

    def _steps(self, number: int, unit: str) -> tuple[list[str], dict[str, str]]:
        """nvcc's commands for one file, and the environment that it gives them."""
        output = f"../{number}"
        argv = [
            str(self.toolchain.nvcc),
            "--dryrun",
            *compiler_flags(self.architecture),
            *("-Xcompiler", f"-Xassembler,--MD,-Xassembler,{output}/assembler.d"),
            *("-frandom-seed", unit),
            *("-ccbin", str(self.toolchain.host_compiler)),
            *("--keep", "--keep-dir", output),
            *("-include", f"{WORKING_DIRECTORY}{GENERATED_HEADER}"),
            *("-I", WORKING_DIRECTORY.rstrip("/")),
            *(part for d in self.library_directories for part in ("-isystem", str(d))),
            *("-c", f"{WORKING_DIRECTORY}{unit}", "-o", f"{output}/unit.o"),
        ]
        environment = self.toolchain.environment(self.temporary)
        dry = run_limited(argv, Limits(wall_s=60, cpu_s=60), cwd=self.sources, env=environment)
        printed = dry.stderr.decode(errors="replace").splitlines()
        commands = []
        for line in (line[3:] for line in printed if line.startswith("#$ ")):
            if match := re.match(r"([A-Z_]+)=(.*)", line):
                if match[1] in ("CICC_PATH", "NVVMIR_LIBRARY_DIR"):
                    environment[match[1]] = match[2]
            elif not line.startswith("rm "):
                fixed = rf'\1"{SOURCE_PREFIX}{unit}"'
                commands.append(re.sub(r'(--orig_src_path_name |--ident=)"[^"]*"', fixed, line))
        if dry.status != 0 or not any(" -E " in c for c in commands):
            raise MachineError(
                f"{self.toolchain.nvcc} --dryrun failed: {printed[-1] if printed else dry.status}"
            )
        return commands, environment

    def _run_steps(
        self, commands: Sequence[str], environment: dict[str, str], unit: str, output: Path
    ) -> str:
        """Run ``commands`` one after the other up to the first that fails; what they printed."""
        stage = self.temporary / "stage"
        lines = []
        for command in commands:
            tool = Path(command.split()[0].strip('"')).name
            lines.append(f'{command}\ns=$?; [ $s = 0 ] || {{ echo "{tool} $s" > ../tmp/stage; exit 1; }}')
        done = self._run(["/bin/sh", "-c", "\n".join(lines)], self.sources, environment, output)
        if done.status == 0 and not done.timed_out:
            return (done.stdout + done.stderr).decode(errors="replace")
        tool, status = stage.read_text().split() if stage.exists() else ("nvcc", str(done.status))
        raise self._explain(done, unit, tool, int(status), output)

    def _run(self, argv: Sequence[str], cwd: Path, environment: dict[str, str], output: Path) -> Finished:
        """Run ``argv`` where it sees compilers and this workshop; it can write to ``output`` and ``tmp``."""
        left = max(0.1, self.limits.wall_s - (time.monotonic() - self.started))
        finished = run_limited(
            argv,
            dataclasses.replace(self.limits, wall_s=left),
            cwd=cwd,
            env=environment,
            confined=sandbox.compiler_confinement(
                self.toolchain.host_compiler,
                self.toolchain,
                read=(self.directory, *self.library_directories),
                write=(self.temporary, output),
            ),
        )
        _check_plain_files(self.temporary)
        _check_plain_files(output)
        return finished

    def _explain(self, done: Finished, unit: str, tool: str, status: int, output: Path | None) -> Refused:
        """The failure of one stage as a person would put it."""
        text = (done.stdout + done.stderr).decode(errors="replace")
        messages = diagnostics.parse(text, unit, output)
        errors = [m for m in messages if m.severity == "error"]
        died = -status if status < 0 else status - 128
        limits = self.limits
        out_of_time = died == signal.SIGXCPU or (
            died == signal.SIGKILL and done.seconds >= (limits.cpu_s or 0)
        )
        if done.timed_out or out_of_time:
            return Refused(
                "timeout",
                f"compiling {unit} was stopped after {limits.wall_s:g} s ({tool} was running): "
                "use fewer or smaller template instantiations, or less unrolling",
                messages,
            )
        if hidden := hidden_include(text, self.policy):
            return Refused("contract", hidden)
        if read := _ASSEMBLER_READS.search(text):
            name = (read[1] or read[2])[:400]
            return Refused("contract", f"inline assembly of the host code reads the file {name}")
        if "unsupported GNU version" in text and not accepts_host_compiler(self.toolchain):
            raise MachineError(
                f"{self.toolchain.title}: this nvcc does not support this g++; put an older g++ first on PATH"
            )
        if _OUT_OF_MEMORY.search(errors[0].text if errors else text):
            return Refused(
                "error",
                f"{tool} ran out of memory on {unit} (limit {_mebibytes(limits.memory)}): "
                "use fewer or smaller template instantiations, or less unrolling",
            )
        if errors:
            return Refused("error", diagnostics.summary(messages), messages)
        if died == signal.SIGXFSZ:
            return Refused("error", f"{tool} wrote more than {_mebibytes(limits.file_size)} for {unit}")
        if died == signal.SIGKILL:  # no limit of ours, and a source cannot send signals
            raise MachineError(f"{tool} was killed from outside (memory full?): try again")
        if died > 0:
            return Refused("error", f"{tool} crashed on {unit} ({signal.Signals(died).name})")
        last = f"exit status {status}"
        if text.strip() and tool != self.toolchain.host_compiler.name:  # g++ may quote any file here
            last = diagnostics.without_paths(text.strip().splitlines()[-1])[:400]
        return Refused("error", f"{tool} failed on {unit}: {last}")

    def _check_assembler_reads(self, dependencies: Path) -> None:
        """Refuse host assembly that reads files (``.incbin``), except the candidate's own."""
        own = f"{self.sources.resolve()}/"
        text = dependencies.read_text(errors="replace").replace("\\\n", " ")
        for name in text.partition(":")[2].split():
            generated = name.endswith(".cudafe1.cpp") or name.startswith(f"{self.temporary}/")
            if not generated and not str((self.sources / name).resolve()).startswith(own):
                raise Refused("contract", f"inline assembly of the host code reads the file {name}")


def _check_plain_files(directory: Path) -> None:
    """Raise Refused if a stage left a link or a device for us to follow: no compiler does, unless broken."""
    for entry in os.scandir(directory):
        if not entry.is_file(follow_symlinks=False):
            raise Refused("contract", f"a stage of the compiler left {entry.name!r}, which is no plain file")


def _with_fixed_paths(preprocessed: bytes) -> bytes:
    """Line markers of the candidate's files with the prefix that ends up in PTX and line tables."""
    pattern = rb'^(# \d+ ")' + re.escape(WORKING_DIRECTORY.encode())
    return re.sub(pattern, rb"\g<1>" + SOURCE_PREFIX.encode(), preprocessed, flags=re.MULTILINE)


def _mebibytes(limit: int | None) -> str:
    return f"{(limit or 0) >> 20} MiB"
