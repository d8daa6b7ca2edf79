.PHONY: check format lint type site test bench

check: format lint type test

format:
	ruff format rlframe tests configs benchmarks docs setup.py

lint:
	ruff format --check rlframe tests configs benchmarks docs setup.py
	ruff check rlframe tests configs benchmarks docs setup.py

type:
	mypy

# The documentation site, to the folder site; every warning is an error. The variable hides an advertisement.
site:
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --quiet

test:
	pytest -m 'not slow and not ray'

bench:
	python benchmarks/run.py
