# The correlator: `make help` lists the targets.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# bin/correlator is for this host; another GOARCH gets its name appended, so that it never
# takes the place of what the host runs.
HOSTARCH := $(shell $(GO) env GOHOSTARCH)
GOARCH   ?= $(HOSTARCH)
BINARY   := bin/correlator$(if $(filter-out $(HOSTARCH),$(GOARCH)),-$(GOARCH))

# Skips for want of root, eBPF or a tool are failures under CI (internal/testenv).
TESTENV := $(if $(CI),STRICT_TESTS=1)
NEED    := .ci/need

# Run by its version and no tool of go.mod, which would get the 200 modules that it needs.
# Building it takes 4 minutes of CPU time, once.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Linters of .golangci.yml that do not pass yet.
LINT_LATER := bodyclose,errcheck,errorlint,ineffassign,lll,misspell,revive

# The package that has them brings the C library of aarch64 itself along.
ARM_HEADERS := /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross

# What rebuilding the committed agent libraries takes.
FIXTURE_TOOLS := cc:gcc musl-gcc:musl-tools aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu clang:clang ld.lld:lld \
	llvm-objcopy:llvm readelf:binutils $(ARM_HEADERS)
EBPF_TOOLS := clang:clang llvm-strip:llvm /usr/include/bpf/bpf_helpers.h:libbpf-dev

.PHONY: build dist demo test bench interop fuzz generate check format-check vet lint generated-check fixtures-check dist-check \
	deploy-check clean help

build: ## build bin/correlator (static); GOARCH=arm64 builds bin/correlator-arm64
	@GO=$(GO) GOARCH=$(GOARCH) .ci/compile $(BINARY) $(VERSION) $(COMMIT)
	@echo built $(BINARY)

dist: ## make a release in dist/: binaries of both architectures, archives, checksums; reproducible
	@.ci/dist dist

demo: build ## show the main job on two real processes (root, under 20 seconds); OTLP=1: and what is exported
	@$(NEED) cc:gcc unshare:util-linux
	@OTLP='$(OTLP)' testdata/demo.sh

# Every time anew (the go command's cache does not see the C sources, the kernel, the tools), and
# one package at a time: an agent under test serves the whole machine, and would register with
# the processes of another package's tests.
test: ## run every test as root, with the race detector
	@$(NEED) $(EBPF_TOOLS) cc:gcc musl-gcc:musl-tools ld.lld:lld javac:openjdk-17-jdk-headless readelf:binutils \
		unshare:util-linux setpriv:util-linux systemd-analyze:systemd buildah:buildah git:git \
		aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static \
		$(ARM_HEADERS)
	$(TESTENV) $(GO) test -race -count 1 -p 1 -timeout 15m ./...

bench: ## run the benchmarks; docs/benchmarks.md quotes them
	@$(NEED) cc:gcc
	$(GO) test -run '^$$' -bench . -benchmem ./...

# The receiver is in a module of its own (testdata/interop), with nearly 70 others that this downloads.
interop: ## send everything to the OpenTelemetry Collector's own receiver, and compare what arrived
	cd testdata/interop && CGO_ENABLED=0 $(GO) build -o ../out/interop .
	INTEROP=$(CURDIR)/testdata/out/interop $(GO) test -tags interop -count 1 -v -run '^TestInterop$$' ./internal/export

FUZZTIME ?= 30s
fuzz: ## fuzz every decoder of foreign bytes for FUZZTIME each
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

generate: ## rebuild the committed eBPF objects, their Go bindings and the fixtures
	@$(NEED) $(EBPF_TOOLS) $(FIXTURE_TOOLS)
	$(GO) generate ./bpf
	$(MAKE) -C testdata fixtures

check: format-check vet lint generated-check fixtures-check dist-check deploy-check ## formatting, vet, linters, generated files current, releases reproducible, deploy/ valid

format-check:
	@$(NEED) clang-format:clang-format
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted (gofmt -w):"; echo "$$files"; exit 1; }
	@files=$$(git ls-files '*.c' '*.h') && clang-format --dry-run --Werror $$files

vet:
	$(GO) vet ./...
	$(GO) vet -tags interop ./internal/export
	GOARCH=arm64 $(GO) vet ./...

lint:
	$(GO) run $(GOLANGCI_LINT) run --disable $(LINT_LATER)

generated-check: ## prove that the committed eBPF objects are what their sources give
	@$(NEED) $(EBPF_TOOLS)
	@.ci/generated

fixtures-check: ## prove that the committed agent libraries are what their sources give
	@$(NEED) $(FIXTURE_TOOLS)
	$(MAKE) -C testdata check-fixtures

dist-check: ## prove that releases are reproducible
	@.ci/dist-check

deploy-check: ## prove that Kubernetes and Prometheus take what is in deploy/
	@.ci/deploy-check
	@.ci/alerts-check

clean: ## remove what was built
	rm -rf bin dist
	$(MAKE) -C testdata clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done
