"""Code extraction: what is taken from an answer, what is left out, and the words for both."""

from __future__ import annotations

import pytest

from cudahercules.evaluate.extraction import SINGLE, extract

SOLVE = 'extern "C" void solve(const a_t* a, cudaStream_t stream) { k<<<1, 1, 0, stream>>>(a); }'


def fence(text: str, info: str = "cuda") -> str:
    return f"```{info}\n{text}\n```\n"


def test_one_block_is_the_candidate():
    got = extract("I tile it.\n\n" + fence(SOLVE) + "\nThat is all.")
    assert got.files == {SINGLE: SOLVE + "\n"}
    assert got.problem == "" and got.ignored == () and got.taken == "Taken: block 1."


def test_of_two_solutions_the_last_is_taken_and_the_first_is_mentioned():
    got = extract(fence(SOLVE + "// draft") + "Better:\n" + fence(SOLVE + "// final"))
    assert got.files[SINGLE].endswith("// final\n")
    assert "the last one that defines solve" in got.taken
    assert got.ignored == ("block 1, an earlier definition of solve",)


def test_a_snippet_beside_the_solution_is_left_out():
    got = extract(fence(SOLVE) + "It is launched as\n" + fence("k<<<1, 1>>>(a);"))
    assert got.files == {SINGLE: SOLVE + "\n"}
    assert got.ignored == ("block 2, which does not define solve",)


@pytest.mark.parametrize("info", ["cuda file={}", "cpp file={}", "file={}"])
def test_named_blocks_make_several_files(info):
    got = extract(fence("#pragma once", info.format("tile.cuh")) + fence(SOLVE, info.format("main.cu")))
    assert got.files == {"tile.cuh": "#pragma once\n", "main.cu": SOLVE + "\n"}


def test_a_first_line_names_a_file_too_and_the_last_text_of_a_name_counts():
    old, new = "// file: tile.cuh\nint old;", "// file: tile.cuh\nint now;"
    got = extract(fence(old) + fence(SOLVE, "cuda file=a.cu") + fence(new) + fence("int x;"))
    assert got.files == {"tile.cuh": new + "\n", "a.cu": SOLVE + "\n"}
    assert "block 1, an earlier text of tile.cuh" in got.ignored
    assert "block 4, which names no file while others do" in got.ignored


def test_only_headers_with_names_are_no_candidate_but_a_nameless_solve_is():
    got = extract(fence("int x;", "cuda file=x.cuh") + fence(SOLVE))
    assert got.files == {SINGLE: SOLVE + "\n"}


@pytest.mark.parametrize(
    ("answer", "cut", "reason"),
    [
        ("", False, "the answer is empty"),
        ("  \n", True, "the answer is empty at its token limit"),
        ("I would use tiles.", False, "no fenced block"),
        (f"Here it is:\n\n{SOLVE}\n", False, "solve stands outside a fenced block"),
        (f"```cuda\n{SOLVE}\n", True, "ends at its token limit inside a block"),
        (fence("int a;") + fence("int b;"), False, "2 blocks of code, and none of them defines solve"),
        (fence("print(1)", "python"), False, "no fenced block of code"),
        (fence(SOLVE, "cuda file=../a.cu"), False, "is no candidate"),
    ],
)
def test_without_code_the_reason_is_given(answer, cut, reason):
    got = extract(answer, cut_off=cut)
    assert got.files == {} and got.taken == ""
    assert reason in got.problem


def test_an_unfinished_block_is_left_out_where_a_finished_one_stands():
    got = extract(fence(SOLVE) + "Now faster:\n```cuda\n" + SOLVE[:40])
    assert got.files == {SINGLE: SOLVE + "\n"}
    assert got.ignored == ("block 2, which the answer does not close",)


def test_other_languages_are_left_out_and_named():
    got = extract(fence("nvcc a.cu", "bash") + fence(SOLVE))
    assert got.files == {SINGLE: SOLVE + "\n"} and got.ignored == ("block 1, which is bash",)
    assert "Left out: block 1, which is bash." in got.explanation()


def test_solve_in_a_comment_or_a_declaration_defines_nothing():
    talk = "// solve(a) { is defined below\n/* void solve(int) { */ void solve(int);"
    assert extract(fence(talk) + fence("int b;")).files == {}


def test_longer_fences_hold_shorter_ones_and_indented_fences_lose_their_indent():
    inner = "/*\n```\n*/\n" + SOLVE
    assert extract(f"````cuda\n{inner}\n````").files == {SINGLE: inner + "\n"}
    assert extract(f"1. so:\n   ```cuda\n   {SOLVE}\n   ```\n").files == {SINGLE: SOLVE + "\n"}
    assert extract(f"~~~cuda\n{SOLVE}\n~~~\n").files == {SINGLE: SOLVE + "\n"}


def test_one_block_without_solve_is_taken_so_that_the_judge_can_say_what_is_missing():
    assert extract(fence("__global__ void k() {}")).files == {SINGLE: "__global__ void k() {}\n"}


def test_the_generated_header_is_never_taken_from_an_answer():
    got = extract(fence("#define N 1", "cuda file=solve.h") + fence(SOLVE, "cuda file=a.cu"))
    assert set(got.files) == {"a.cu"}
    assert got.ignored == ("block 1, a solve.h: the generated one is used",)


def test_a_line_ends_where_cpp_ends_it():
    answer = '```cpp\nextern "C" void solve() { /* \u2028 \x0b \x85 */ }\r\n// next\n```\n'
    (text,) = extract(answer).files.values()
    assert text == 'extern "C" void solve() { /* \u2028 \x0b \x85 */ }\n// next\n'
