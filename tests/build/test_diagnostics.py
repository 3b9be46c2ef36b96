"""Compiler output as typed messages. The samples are nvcc 13.0's and g++ 12's own words."""

from __future__ import annotations

from cudahercules.build.diagnostics import MAX_MESSAGES, MAX_TOTAL, parse, summary

EDG = """\
/candidate/solution.cu(3): warning #177-D: variable "a" was declared but never referenced
  int a;
      ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

/candidate/solution.cu(5): error: calling a __device__ function("dd(int)") from a __host__ function
  dd(3);
  ^

1 error detected in the compilation of "/candidate/solution.cu".
"""

TEMPLATE = """\
/candidate/u.cu(3): error: expression must have class type but it has type "int"
  auto l = [](auto y){ return y.foo; }; l(3);
                              ^
          detected during instantiation of function "lambda [](auto)->auto [with <auto-1>=int]" at line 3

/candidate/u.cu(2): error: excessive recursion at instantiation of member "F<N>::v [with N=800]"
  template<int N> struct F { static const int v = F<N-1>::v; };
                                                  ^
          detected during:
            instantiation of class "F<N> [with N=801]" at line 2
            [ 190 instantiation contexts not shown ]
            instantiation of class "F<N> [with N=1000]" at line 3

At end of source: error: expected a "}"
"""

PTX = """\
	.file	1 "/candidate/p.cu"
.visible .entry k()
{
	.loc	1 2 0
	mov.u32 	%r1, 0;
	.loc	1 7 3
	foo.bar %r1;
}
"""


def test_errors_come_first_with_own_names():
    first, second = parse(EDG, "solution.cu")
    assert (first.severity, first.file, first.line) == ("error", "solution.cu", 5)
    assert first.text.startswith('calling a __device__ function("dd(int)")')
    assert (second.severity, second.line) == ("warning", 3)
    assert second.text == 'variable "a" was declared but never referenced'


def test_summary_is_one_line_with_the_count():
    assert summary(parse(EDG, "solution.cu")).startswith("solution.cu:5: error: calling a __device__")
    assert summary(parse(TEMPLATE, "u.cu")).endswith("(and 2 more)")


def test_templates_name_the_first_instantiation():
    messages = parse(TEMPLATE, "u.cu")
    assert messages[0].text.endswith('"lambda [](auto)->auto [with <auto-1>=int]" at line 3]')
    assert messages[1].text.endswith('[instantiation of class "F<N> [with N=801]" at line 2]')
    assert (messages[2].line, messages[2].text) == (0, 'at the end of the source: expected a "}"')


def test_preprocessor():
    text = (
        "/proc/self/cwd/sub/a.cuh:6:10: fatal error: missing.h: No such file or directory\n"
        '    6 | #include "missing.h"\n      |          ^~~\ncompilation terminated.\n'
    )
    (message,) = parse(text, "a.cu")
    assert (message.file, message.line) == ("sub/a.cuh", 6)
    assert message.text == "missing.h: No such file or directory"


def test_toolkit_headers_lose_their_directories():
    text = "/opt/x/targets/x86_64-linux/include/cccl/cuda/std/span(12): error: no\n"
    assert parse(text, "a.cu")[0].file == "cuda/std/span"
    text = '/candidate/a.cu(1): error: cannot open source file "/opt/y/include/cuda_fp16.h"\n'
    assert parse(text, "a.cu")[0].text == 'cannot open source file "cuda_fp16.h"'


def test_division_is_not_a_path():
    text = "/candidate/a.cu(1): error: x/y/z is 3.0/2.0/1.0\n"
    assert parse(text, "a.cu")[0].text == "x/y/z is 3.0/2.0/1.0"


def test_foreign_files_are_not_quoted():
    text = "/etc/passwd:1:2: error: invalid preprocessing directive #root\n"
    assert parse(text, "a.cu") == ()


def test_ptxas_lines_become_source_lines(tmp_path):
    (tmp_path / "p.ptx").write_text(PTX)
    text = (
        "ptxas ../0/p.ptx, line 7; error   : Unknown modifier '.bar'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    (message,) = parse(text, "p.cu", tmp_path)
    assert (message.file, message.line, message.text) == ("p.cu", 7, "ptxas: Unknown modifier '.bar'")


def test_ptxas_without_a_place():
    text = "ptxas error   : Entry function '_Z1kv' uses too much shared data (0x13880 bytes, 0xc000 max)\n"
    (message,) = parse(text, "p.cu")
    assert (message.file, message.line) == ("p.cu", 0)
    assert "too much shared data" in message.text


def test_hints():
    (message,) = parse("ptxas fatal   : Unresolved extern function '_Z5otheri'\n", "p.cu")
    assert "in the same .cu file or in a header" in message.text
    text = (
        '/candidate/a.cu(4): error: more than one instance of overloaded function "solve" has "C" linkage\n'
    )
    assert "exactly the parameters that solve.h declares" in parse(text, "a.cu")[0].text


def test_repeated_messages_are_kept_once():
    assert len(parse(EDG + EDG, "solution.cu")) == 2


def test_limits():
    many = "".join(f"/candidate/a.cu({i}): error: {'x' * 300}\n" for i in range(1, 200))
    assert len(parse(many, "a.cu")) == MAX_MESSAGES
    long = "".join(f"/candidate/a.cu({i}): error: {'y' * 5000}\n" for i in range(1, 200))
    messages = parse(long, "a.cu")
    assert 0 < sum(len(m.text) for m in messages) <= MAX_TOTAL
    assert messages[0].text.endswith("…")


def test_linker():
    text = (
        "/usr/bin/ld: 1/unit.o: in function `helper':\n(.text+0x0): multiple definition of `helper'; 0/u.o\n"
    )
    assert parse(text, "a.cu")[0].text == "helper is defined in more than one .cu file"
