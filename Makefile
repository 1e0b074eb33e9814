# Everything one does with this tree. `make` alone lists the targets.

.DEFAULT_GOAL := help
.PHONY: help demo run test test-clients loom bench fmt lint doc trace schema setup ci

CARGO ?= cargo
# Builds are reproducible: what Cargo.lock says, or an error.
LOCKED := --locked

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, start the gateway with scripted providers, watch five stories
	@scripts/setup build
	@scripts/demo

run: ## run the gateway with conf/quickstart.yaml until Ctrl-C
	@scripts/setup build
	$(CARGO) run $(LOCKED) -- run -c conf/quickstart.yaml

test: ## all tests but those with client libraries: the pure ones alone, then everything on real sockets and a PostgreSQL of its own
	@scripts/setup build
	@scripts/setup tests
	$(CARGO) test $(LOCKED) --no-default-features --test pure
	scripts/postgres run $(CARGO) test $(LOCKED)

test-clients: ## the vendors' own client libraries against the gateway
	@scripts/setup build
	@scripts/setup clients
	@test -x tests/clients/run || { echo "tests/clients/run is not in this tree: nothing to test" >&2; exit 1; }
	$(CARGO) build $(LOCKED) --bin rondo
	tests/clients/run

loom: ## every interleaving of the shared counters
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target}/loom \
		$(CARGO) test $(LOCKED) --no-default-features --test loom

bench: ## measure beside other programs, short form, and write load-tests/report; BENCH="--rounds 5" for the full one
	@scripts/setup build
	@load-tests/bench $(BENCH)

fmt: ## format the code
	$(CARGO) fmt

lint: ## what CI refuses: formatting and warnings, with and without Pingora
	$(CARGO) fmt --check
	$(CARGO) clippy $(LOCKED) --all-targets -- -D warnings
	$(CARGO) clippy $(LOCKED) --no-default-features --all-targets -- -D warnings

doc: ## the API documentation; a broken link is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --no-deps

trace: ## write docs/requirements-trace.md anew from the tests
	scripts/trace

schema: ## write conf/rondo.schema.json anew
	$(CARGO) run $(LOCKED) --quiet -- schema > conf/rondo.schema.json.new
	mv conf/rondo.schema.json.new conf/rondo.schema.json

setup: ## install what is missing: C compiler, cmake, curl, Python's venv, PostgreSQL
	@scripts/setup
	@echo "Nothing is missing."

ci: ## all that a change must pass
	.ci/run
