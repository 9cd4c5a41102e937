# What contributors and continuous integration run. Needs python3 (3.11 or newer), make and a package index; `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
VECTORS ?= tests/vectors
FILES ?=
ARGS ?=
PEER ?= .venv-playwright

BIN := $(VENV)/bin
PY := $(BIN)/python
SOURCES := src tests benchmarks tools
SYSTEM_PACKAGES := chromium chromium-headless-shell nginx-light python3-doc strace valgrind
# Two workers: much of the suite waits on sockets and clocks.
PYTEST := $(PY) -m pytest
WORKERS ?= 2
# The rules that flake8-async has on by default. Its optional ones ask for a checkpoint in every async function, which is not the rule here: one
# exchange has one, a step of it that finds its answer at hand has none. That httpx is unmaintained (127) is known: both seams are tested. 114 wants
# a list kept of functions that `nursery.start` may call.
FLAKE8_ASYNC := --jobs 2 --select ASYNC1,ASYNC2,ASYNC3,ASYNC4 --extend-ignore ASYNC114,ASYNC124,ASYNC127
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--only-binary :all: --custom-compile-command "make lock" pyproject.toml

.PHONY: help demo test check lint format types contracts vectors stress-crawl stress-browser bench-render fuzz-egress fuzz-http crash-store stress-store soak-mirror cov lock lock-upgrade system env-run env-dev clean
.DEFAULT_GOAL := help

help:
	@echo "make demo            crawl a bundled site on loopback through the guard, show what was captured and what was refused"
	@echo "make test            lint, types, import contracts, vectors and the test suite (ARGS=... goes to pytest)"
	@echo "make check           the same with coverage and its floor"
	@echo "make lint            ruff, flake8-async, import contracts"
	@echo "make format          rewrite files as ruff formats them"
	@echo "make types           mypy --strict"
	@echo "make vectors         language-neutral vectors; VECTORS=DIR another folder, FILES=\"a.json b.json\" only some"
	@echo "make cov             the test suite with coverage and its floor"
	@echo "make stress-crawl    a crawl at every concurrency, cancelled at 200 and killed at 100 random moments; SEED=N"
	@echo "make stress-browser  browsers cancelled at 300 random moments, killed 50 times, their parents 50 times; hostile pages; SEED=N"
	@echo "make bench-render    rendered pages beside Playwright's, which is installed for it in .venv-playwright"
	@echo "make soak-mirror     a mirror crawl with a browser, killed at 100 random moments; SEED=N"
	@echo "make fuzz-egress     a million generated URLs, answers and redirects against the guard; SEED=N COUNT=N"
	@echo "make fuzz-http       a million mutated answers, a hundred thousand mutated pages, sitemaps and robots.txt files; SEED=N COUNT=N"
	@echo "make crash-store     a writer of a store killed at every system call that touches it"
	@echo "make stress-store    processes that share a store and are killed at random; SEED=N"
	@echo "make lock            locks that fit pyproject.toml; make lock-upgrade takes the newest releases"
	@echo "make clean           remove the environment and caches"
	@echo "PYTHON=python3.13 names the interpreter, VENV=DIR the environment."

# Environments: nothing happens when the lock, pyproject.toml and the interpreter are those of the last run.

env-run:
	@$(PYTHON) tools/make_venv.py $(VENV) requirements/run.txt

env-dev:
	@$(PYTHON) tools/make_venv.py $(VENV) requirements/dev.txt

system:
	@$(PYTHON) tools/system_packages.py $(SYSTEM_PACKAGES)

# The main job.

demo: env-run
	@$(BIN)/forage demo

# Checks. The closing lines of `make test` are pytest's.

test: env-dev system
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types
	@$(PYTEST) --numprocesses=$(WORKERS) --dist=worksteal $(ARGS)

check: env-dev system
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types
	@$(MAKE) --no-print-directory cov

lint: env-dev contracts
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/ruff format --quiet --check $(SOURCES)
	@$(PY) -m flake8 $(FLAKE8_ASYNC) $$(grep -rlE --include='*.py' '^ *async ' $(SOURCES))

format: env-dev
	@$(BIN)/ruff check --quiet --fix-only $(SOURCES)
	@$(BIN)/ruff format --quiet $(SOURCES)

contracts: env-dev
	@$(BIN)/lint-imports --no-logo

types: env-dev
	@$(BIN)/mypy

vectors: env-dev
	@$(PY) -m tests.vector_runner $(VECTORS) --files "$(FILES)"

# Generated stories for the guard, mutated answers and robots.txt files; SEED=N and COUNT=N choose others.
SEED ?= 1
COUNT ?= 1000000

fuzz-egress: env-dev
	@$(PY) -m tests.egress.fuzz_egress $(COUNT) $(SEED)

fuzz-http: env-dev
	@$(PY) -m tests.fetch.fuzz_http --seed $(SEED) --count $(COUNT) --seconds 7200
	@$(PY) -m tests.fetch.fuzz_http --seed $(SEED) --count 100000 --seconds 7200 --robots
	@$(PY) -m tests.crawler.fuzz_parsers --seed $(SEED) --count 100000 --seconds 7200

# A writer killed at every system call that touches the store; processes killed at random while they share sources.
crash-store: env-dev system
	@$(PY) -m tests.snapshots.crash_store

stress-store: env-dev
	@$(PY) -m tests.snapshots.stress_store --seconds 60 --seed $(SEED)

# A generated site: one manifest at any concurrency, polite, accounted for; then the same crawls cancelled and killed.
stress-crawl: env-dev
	@$(PY) -m tests.crawler.stress --seed $(SEED)
	@$(PY) -m tests.crawler.kill --seed $(SEED)

# Browsers cancelled and killed in both programs and over both transports leave nothing; hostile pages end in their outcome.
stress-browser: env-dev system
	@$(PY) -m tests.browser.stress --seed $(SEED)

# Rendered pages beside Playwright's, which gets an environment of its own and drives the same program.
bench-render: env-dev system
	@test -x $(PEER)/bin/playwright || { $(PYTHON) -m venv $(PEER) && $(PEER)/bin/python -m pip install --quiet playwright; }
	@$(PY) -m benchmarks.render --playwright $(PEER) $(ARGS)

# A mirror crawl of 20 documents, killed at random moments and started again, ends in the root of an undisturbed one.
soak-mirror: env-dev system
	@$(PY) -m tests.mirror.kill --seed $(SEED)

cov: env-dev system
	@rm -f .coverage .coverage.*
	@$(PY) -m coverage run -m pytest --numprocesses=$(WORKERS) --dist=worksteal $(ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

# Locks hold every wheel's hash for all supported Pythons and no index address. `dev` holds what `run` holds, at the same releases.

$(BIN)/uv:
	@$(PYTHON) tools/make_venv.py $(VENV) requirements/dev.txt

lock: $(BIN)/uv
	@$(UV_COMPILE) $(UPGRADE) --group build --output-file requirements/run.txt
	@$(UV_COMPILE) $(UPGRADE) --group build --group test --group lint --group lock --constraints requirements/run.txt \
		--output-file requirements/dev.txt

lock-upgrade:
	@$(MAKE) --no-print-directory lock UPGRADE=--upgrade

clean:
	rm -rf $(VENV) .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
