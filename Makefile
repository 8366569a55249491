# Every target sets up what it needs: a machine with python3 (3.11 or newer), make and git is enough.
# Set-up and make talk on stderr; stdout belongs to the program: make demo ARGS="--output json" | jq

MAKEFLAGS += --silent --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo example test test-fast hunt mutants check fmt docs bench bench-quick clean

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

help:
	sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

setup: ## install into .venv/ what uv.lock lists
	$(PYTHON) -m tools.setup

demo: setup ## run the main job on 336,776 real flight records; ARGS="--output json" for programs
	$(BIN)/eventproc demo data/flights.csv.xz $(ARGS)

example: setup ## a pipeline on Spark over the same records; ARGS="--continuous", ARGS="--plot delays.png"
	$(BIN)/python docs/examples/carrier_delays.py $(ARGS)

test: setup ## every test, a bounded slice of the hunts among them; ARGS="-k name" to choose
	$(BIN)/pytest -q $(ARGS)

test-fast: setup ## in two minutes: no other processes, no Spark, a fifth of the seeds; ARGS="-k name" to choose
	$(BIN)/pytest -q -n 2 --hunt 0.2 -m "not (subprocess or torture or spark or packaging)" $(ARGS)

hunt: setup ## fifty times as many seeds and examples; ARGS="--hunt 1000" for longer
	$(BIN)/pytest -q --hunt 50 $(ARGS)

mutants: setup ## plant known bugs one at a time; fails if a test does not find one; ARGS="name ..." to choose
	$(BIN)/python -m tools.mutants $(ARGS)

check: setup ## the gate: format, lint, types, layers, documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m tools.docs --check

fmt: setup ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## write what is generated from code, and build the site into build/site
	$(BIN)/python -m tools.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	echo "build/site/index.html"

bench: setup ## every benchmark beside its floor
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: setup ## the first bars, within a few minutes
	$(BIN)/python -m benchmarks --quick $(ARGS)

clean: ## remove generated files and the environment
	rm -rf .venv .tools build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
