# make demo: the main job on a real pair. make test: everything that CI runs. VENV= names another place for the environment.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Python 3.13 has no MindSpore.
EXTRAS := $(shell $(PYTHON) -c "import sys; print('dev,report,torch,mindspore,demo' if sys.version_info < (3, 13) else 'dev,report,torch')")

.PHONY: demo test check install clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

demo: install
	$(BIN)/python examples/demo.py

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

test: check

clean:
	rm -rf $(VENV) demo-run build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
