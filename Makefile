# The tasks.  `make demo` and `make test` set up all that they need, in .venv, on a machine with Python and make.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NIXL   ?= nixl-cu12==1.5.1
PIN    := sample_traces/bad/resurrection_pin
OUT    ?= demo

PYTEST_ARGS ?=

.PHONY: help demo test test-all test-core lint samples docs clean

help:
	@echo 'make demo      analyze, draw and replay a pinned room on real NIXL (no GPU, no torch, no SGLang)'
	@echo 'make test      the tests that need no SGLang package'
	@echo 'make test-all  all tests (PYTEST_ARGS to choose); fetches two SGLang wheels with pip'
	@echo 'make lint      ruff and mypy --strict'
	@echo 'make samples   record the sample traces again, on SGLang'"'"'s real managers'
	@echo 'make docs      draw the pictures of the documentation again'

# --- set-up: each stamp is one step, so that a second `make` does nothing twice

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/core: $(VENV)/made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# NIXL's wheel asks for torch and never needs it; the wheel alone is 69 MB.
$(VENV)/nixl: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(NIXL)
	touch $@

$(VENV)/dev: $(VENV)/nixl
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/core-dev: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/rig: $(VENV)/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[rig]'
	touch $@

# --- tasks

demo: $(VENV)/nixl
	@mkdir -p $(OUT)
	@$(BIN)/python -m tracekv analyze $(PIN); test $$? -eq 1
	@room=$$($(BIN)/python -m tracekv rooms $(PIN) --format csv | sed -n 2p | cut -d, -f1); \
	  $(BIN)/python -m tracekv show $(PIN) $$room -o $(OUT)/room.png
	@echo; echo '--- the same room again, on real NIXL'
	$(BIN)/python -m tracekv replay $(PIN) --times 20
	@echo; echo '--- the same schedule on the build with fix B'
	$(BIN)/python -m tracekv replay $(PIN) --times 20 --build 0.5.14+fork+fix-b --expect failed
	@echo; echo 'The picture of the pinned room: $(OUT)/room.png'

test: $(VENV)/dev
	$(BIN)/python -m pytest -m 'not sglang' $(PYTEST_ARGS)

test-all: $(VENV)/rig
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-core: $(VENV)/core-dev
	$(BIN)/python -m pytest -m 'not sglang and not nixl' $(PYTEST_ARGS)

lint: $(VENV)/rig
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

samples: $(VENV)/rig
	$(BIN)/python sample_traces/record.py

docs: $(VENV)/nixl
	$(BIN)/python docs/draw.py

clean:
	rm -rf $(VENV) $(OUT) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
