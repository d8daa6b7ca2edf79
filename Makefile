.PHONY: check format lint type test bench

check: format lint type test

format:
	ruff format rlframe tests configs benchmarks docs setup.py

lint:
	ruff format --check rlframe tests configs benchmarks docs setup.py
	ruff check rlframe tests configs benchmarks docs setup.py

type:
	mypy

test:
	pytest -m 'not slow and not ray'

bench:
	python benchmarks/run.py
