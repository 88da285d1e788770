# `make` alone prints the targets. VENV= names another place for the environment, PYTHON= another interpreter.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

comma := ,
# Python 3.13 has no MindSpore: there the tests that need a framework are left out, and pytest says how many.
HAS_MINDSPORE := $(shell $(PYTHON) -c "import sys; print('yes' if sys.version_info < (3, 13) else '')")
EXTRAS := dev,report,watch,onnx,fast,dask,remote$(if $(HAS_MINDSPORE),$(comma)torch$(comma)onnx-export$(comma)mindspore$(comma)demo)
SELECT := $(if $(HAS_MINDSPORE),,-m "not frameworks")

# A file of tests stays in one process: its fixtures are made once. The order is that of tests/conftest.py.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
# On some processors with AVX-512, MindSpore's convolutions take a hundred times as long without it, at equal accuracy.
ISA := ONEDNN_MAX_CPU_ISA=AVX2

.DEFAULT_GOAL := help
.PHONY: help install demo has-mindspore test check lint docs fuzz format clean

help:  ## print the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(VENV)/installed  ## make the environment (again, when a requirement changed)

# Not compiled here: that takes half of the time, and most of the modules are never imported.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV); this takes about two minutes ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable ".[$(EXTRAS)]"
	@touch $@

demo: has-mindspore install  ## the main job on a real pair: two implementations of ResNet-18
	$(BIN)/python examples/demo.py

has-mindspore:
	@test -n "$(HAS_MINDSPORE)" || { echo "make demo needs MindSpore, which has no wheel for this Python: add PYTHON=python3.12" >&2; exit 2; }

test: check  ## everything that CI runs

check: lint  ## lint, then all tests
	@command -v chromium >/dev/null || echo "Hint: tests open the HTML report in a browser: apt-get install chromium"
	$(ISA) $(BIN)/python -m pytest $(WORKERS) $(SELECT)

lint: install  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs:  ## the documentation as a site with search, in build/site (in an environment of its own, build/docs)
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip install --quiet --disable-pip-version-check "mkdocs-material>=9.5,<10" jieba
	build/docs/bin/python docs/make_site.py
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict --quiet

fuzz: install  ## attack every reader of files, FUZZ_SECONDS (60) each; Python 3.11 or newer
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[fuzz]"
	$(BIN)/python tests/attacks/fuzz_readers.py

format: install  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and everything that was generated
	rm -rf $(VENV) demo-run build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis fuzz-findings
