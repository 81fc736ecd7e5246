# Needs python3 (3.11 or newer), git and a package registry; node for the trace-processor tests.
# Everything is installed into .venv and .venv-oldest, and again only when the pins change.

PYTHON ?= python3
PYTEST_ARGS ?=

# `make -j2 test` runs two parts at once. Each is one process: workers of one run import every test file each.
PYTEST := bin/pytest
CODE := $(addprefix tests/,inspection probes ptx sass targets verifier)
LANGUAGES := plugins/ikp-amd/tests $(addprefix tests/,backends profiling running session)

PROJECT := pyproject.toml ikp/version.py
PLUGIN := plugins/ikp-amd/pyproject.toml
SITE := .venv-site/.installed
DIST := .venv-dist/.installed
DEMO := .venv/.demo-installed
NEWEST := .venv/.installed
OLDEST := .venv-oldest/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# These may run at once, `make -j2 lint test`. Others change what is used meanwhile: one by one.
ifneq (,$(filter-out install lint site test%,$(MAKECMDGOALS)))
.NOTPARALLEL:
endif
.PHONY: help install demo test test-newest test-newest-code test-newest-languages test-newest-others
.PHONY: test-interp test-oldest test-oldest-interp
.PHONY: lint format docs site dist clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

install: $(NEWEST) ## Install ikp and its tools into .venv, editable, at pinned versions

demo: $(DEMO) ## Profile a kernel, with or without a GPU: a table, and a trace for the Perfetto UI
	.venv/bin/ikp demo

test: test-newest test-interp test-oldest test-oldest-interp ## Run every test that needs no GPU

# The others come by what is left out, so that a new folder is in one of the three parts.
test-newest: test-newest-code test-newest-languages test-newest-others ## ... all but the interpreter's, with the newest dependencies
test-newest-code: PART := $(CODE)
test-newest-languages: PART := $(LANGUAGES)
test-newest-others: PART := tests $(addprefix --ignore=,$(CODE) $(LANGUAGES))
test-newest-code test-newest-languages test-newest-others: $(NEWEST)
	.venv/$(PYTEST) -m "not gpu and not interp" $(PART) $(PYTEST_ARGS)

test-interp: $(NEWEST) ## ... kernels in Triton's interpreter
	.venv/$(PYTEST) -m interp $(PYTEST_ARGS)

# What differs with other versions is what they do, not which traces they do it to.
test-oldest: export HYPOTHESIS_PROFILE ?= few
test-oldest: $(OLDEST) ## ... those that a dependency's version can change, with the oldest
	.venv-oldest/$(PYTEST) -m "not gpu and not interp and not any_pins" $(PYTEST_ARGS)

test-oldest-interp: $(OLDEST) ## ... kernels in the oldest Triton's interpreter
	.venv-oldest/$(PYTEST) -m "interp and not any_pins" $(PYTEST_ARGS)

lint: $(NEWEST) ## Check style, formatting and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy

format: $(NEWEST) ## Repair what lint can repair
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

docs: $(NEWEST) ## Write docs/api.md from the docstrings
	.venv/bin/python tools/apidoc.py

# Strict: a page that is in no list, and a link that leads nowhere, fail. The second command looks at the pages
# as a browser gets them: none may fetch anything from elsewhere.
site: $(SITE) ## Build the documentation's site into build/site, and check its links
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/python -m mkdocs build -q -d build/site
	.venv-site/bin/python -m tools.site.check build/site

dist: $(DIST) ## Build what a release publishes into dist/, and check it
	rm -rf dist
	.venv-dist/bin/python -m tools.wheels dist
	.venv-dist/bin/python -m twine check --strict dist/*

clean: ## Remove the environments, caches and builds
	rm -rf .venv .venv-oldest .venv-site .venv-dist .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs no more than a user does; the tools to work on ikp come on top, when they are asked for.
$(DEMO): $(PROJECT) requirements-newest.txt
	$(call install,.venv,requirements-newest.txt,triton)

$(NEWEST): $(PROJECT) $(PLUGIN) requirements-newest.txt
	$(call install,.venv,requirements-newest.txt,dev,-e $(dir $(PLUGIN)))
	@touch $(DEMO)

$(OLDEST): $(PROJECT) $(PLUGIN) requirements-oldest.txt
	$(call install,.venv-oldest,requirements-oldest.txt,test,-e $(dir $(PLUGIN)))

$(SITE) $(DIST): .venv-%/.installed: requirements-%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install -q --no-compile -r $<
	@touch $@

# $(call install,folder,pins,extra,more to install): the build backend comes first, pinned like the rest, so that ikp is
# built with it and not with one chosen for a hidden environment. uv unpacks several wheels at once, and
# in a third of pip's time; where it reaches no registry, pip may, which knows a mirror from pip.conf.
# Neither byte-compiles all of torch, which would take longer than the rest; Python compiles what is
# imported, when it is.
define install
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "ikp needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(1)
	@ls $(1)/lib/python*/site-packages/torch >/dev/null 2>&1 || echo "Installing torch and Triton into $(1). With torch's wheel for Linux comes CUDA: 3 GB to download and 6 GB of disk, unless a CPU build is found. This takes minutes, once."
	$(1)/bin/python -m pip install -q --no-compile -c $(2) editables hatchling uv
	$(1)/bin/uv pip install -q --python $(1) -c $(2) --no-build-isolation -e '.[$(3)]' $(4) \
		|| $(1)/bin/python -m pip install -q --no-compile -c $(2) --no-build-isolation -e '.[$(3)]' $(4)
	$(1)/bin/uv pip check -q --python $(1)
	@touch $@
endef
