# Every target works in a fresh clone: scripts/environment.sh makes .venv, or finds a Python to use.

.PHONY: help demo test test-slow test-gpu check site clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       grade bundled candidates of four families on this machine and explain the verdicts"
	@echo "make test       the test suite (default tier); counts what was skipped, and why"
	@echo "make test-slow  the slow tier: big builds and long fuzz runs"
	@echo "make test-gpu   the tests that need an NVIDIA GPU"
	@echo "make check      ruff and mypy"
	@echo "make site       the documentation as static pages in site/"
	@echo "make clean      remove .venv and caches of this checkout"

demo:
	@python=$$(scripts/environment.sh demo) && $$python -m cudahercules demo

test:
	@python=$$(scripts/environment.sh test) && $$python -m pytest

test-slow:
	@python=$$(scripts/environment.sh test) && $$python -m pytest --slow

test-gpu:
	@python=$$(scripts/environment.sh test) && $$python -m pytest --gpu -m gpu

check:
	@python=$$(scripts/environment.sh check) && $$python -m ruff check src tests benchmarks examples && \
	  $$python -m ruff format --check src tests benchmarks examples && $$python -m mypy

site:
	@python=$$(scripts/environment.sh check) && $$python -m cudahercules site site

clean:
	rm -rf .venv .venv-install.log .pytest_cache .mypy_cache .ruff_cache
