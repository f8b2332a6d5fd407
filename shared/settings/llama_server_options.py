"""llama-server's options and environment variables, as far as lead and back support them.

Options that we have are mapped, and options without effect here are ignored. All others are refused with a
reason. The source is llama.cpp's common/arg.cpp.
"""

from typing import Final

from shared.sampling.asked_fields import settable_parameters
from shared.settings.command_line import Dialect, Spelling

_SPELLINGS: Final = {
    "alias": Spelling(("-a",), ("LLAMA_ARG_ALIAS",)),
    "api_key": Spelling(variables=("LLAMA_API_KEY",)),
    "batch_size": Spelling(("-b",), ("LLAMA_ARG_BATCH",), default=2048),
    "cache_ram": Spelling(("-cram",), ("LLAMA_ARG_CACHE_RAM",)),
    "cache_type_k": Spelling(("-ctk",), ("LLAMA_ARG_CACHE_TYPE_K",)),
    "cache_type_k_draft": Spelling(("-ctkd", "--spec-draft-type-k"), ("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",)),
    "cache_type_v": Spelling(("-ctv",), ("LLAMA_ARG_CACHE_TYPE_V",)),
    "cache_type_v_draft": Spelling(("-ctvd", "--spec-draft-type-v"), ("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",)),
    "cpu_moe": Spelling(("-cmoe",), ("LLAMA_ARG_CPU_MOE",)),
    "ctx_size": Spelling(("-c",), ("LLAMA_ARG_CTX_SIZE",)),
    "ctx_size_draft": Spelling(("-cd",)),
    "device": Spelling(("-dev",), ("LLAMA_ARG_DEVICE",)),
    "device_draft": Spelling(("-devd", "--spec-draft-device")),
    "draft_max": Spelling(
        ("--draft", "--draft-n", "--spec-draft-n-max"), ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX")
    ),
    "draft_model": Spelling(("-md", "--model-draft", "--spec-draft-model"), ("LLAMA_ARG_SPEC_DRAFT_MODEL",)),
    "fit": Spelling(("-fit",), ("LLAMA_ARG_FIT",)),
    "fit_target": Spelling(("-fitt",), ("LLAMA_ARG_FIT_TARGET",)),
    "flash_attn": Spelling(("-fa",), ("LLAMA_ARG_FLASH_ATTN",)),
    "hf_file": Spelling(("-hff",), ("LLAMA_ARG_HF_FILE",)),
    "hf_repo": Spelling(("-hf", "-hfr"), ("LLAMA_ARG_HF_REPO",)),
    "hf_repo_draft": Spelling(("-hfd", "-hfrd", "--spec-draft-hf"), ("LLAMA_ARG_SPEC_DRAFT_HF_REPO",)),
    "hf_token": Spelling(("-hft",), ("HF_TOKEN",)),
    "key": Spelling(("--api-key",)),
    "ctx_checkpoints": Spelling(("-ctxcp", "--swa-checkpoints"), ("LLAMA_ARG_CTX_CHECKPOINTS",)),
    "key_file": Spelling(("--api-key-file",)),
    "kv_offload": Spelling(variables=("LLAMA_ARG_KV_OFFLOAD",), constants={"-kvo": True, "-nkvo": False}),
    "kv_unified": Spelling(("-kvu",), ("LLAMA_ARG_KV_UNIFIED",), {"-no-kvu": False}),
    "load_mode": Spelling(
        ("-lm",),
        ("LLAMA_ARG_LOAD_MODE",),
        {"--mlock": "mmap+mlock", "--mmap": "mmap", "--no-mmap": "none", "-dio": "dio", "--direct-io": "dio"},
    ),
    "log_json": Spelling(("--log-jsonl",), ("LLAMA_ARG_LOG_JSONL",)),
    "log_level": Spelling(constants={"-v": "debug", "--verbose": "debug", "--log-verbose": "debug"}),
    "lora": Spelling(("--lora-scaled",)),
    "main_gpu": Spelling(("-mg",), ("LLAMA_ARG_MAIN_GPU",)),
    "metrics": Spelling(variables=("LLAMA_ARG_ENDPOINT_METRICS",)),
    "mmproj": Spelling(("-mm",), ("LLAMA_ARG_MMPROJ",)),
    "mmproj_auto": Spelling(variables=("LLAMA_ARG_MMPROJ_AUTO",), constants={"--no-mmproj": False}),
    "mmproj_offload": Spelling(variables=("LLAMA_ARG_MMPROJ_OFFLOAD",)),
    "model": Spelling(("-m",), ("LLAMA_ARG_MODEL",)),
    "n_cpu_moe": Spelling(("-ncmoe",), ("LLAMA_ARG_N_CPU_MOE",)),
    "n_gpu_layers": Spelling(("-ngl", "--gpu-layers"), ("LLAMA_ARG_N_GPU_LAYERS",)),
    "n_gpu_layers_draft": Spelling(
        ("-ngld", "--gpu-layers-draft", "--spec-draft-ngl"), ("LLAMA_ARG_N_GPU_LAYERS_DRAFT",)
    ),
    "n_predict": Spelling(("-n", "--predict"), ("LLAMA_ARG_N_PREDICT",)),
    "override_tensor": Spelling(("-ot",), ("LLAMA_ARG_OVERRIDE_TENSOR",)),
    "parallel": Spelling(("-np",), ("LLAMA_ARG_N_PARALLEL",)),
    "port": Spelling(variables=("LLAMA_ARG_PORT",), default=8080),
    "reasoning": Spelling(("-rea",), ("LLAMA_ARG_REASONING",)),
    "reasoning_format": Spelling(variables=("LLAMA_ARG_THINK",)),
    "repack": Spelling(variables=("LLAMA_ARG_REPACK",), constants={"-nr": False}),
    "slots": Spelling(variables=("LLAMA_ARG_ENDPOINT_SLOTS",)),
    "split_mode": Spelling(("-sm",), ("LLAMA_ARG_SPLIT_MODE",)),
    "tensor_split": Spelling(("-ts",), ("LLAMA_ARG_TENSOR_SPLIT",)),
    "threads": Spelling(("-t",), ("LLAMA_ARG_THREADS",)),
    "threads_batch": Spelling(("-tb",)),
    "threads_draft": Spelling(("-td", "--spec-draft-threads")),
    "ubatch_size": Spelling(("-ub",), ("LLAMA_ARG_UBATCH",)),
    "ui": Spelling(("--webui",), ("LLAMA_ARG_UI",)),
    "write_seconds": Spelling(("-to", "--timeout"), ("LLAMA_ARG_TIMEOUT",)),
}

_BY_VARIABLE: Final = (
    "api_key_file chat_template chat_template_file chat_template_kwargs context_shift "
    "cors_origins host image_max_tokens models_dir models_max offline prefill_assistant rpc ssl_cert_file "
    "ssl_key_file swa_full tags"
)
"""Options that llama-server also reads from an environment variable, whose name is LLAMA_ARG_ followed by the
option's name.
"""

_IGNORED: Final = {
    # what they ask for is always the case, or does not change answers
    0: (
        "-cb --cont-batching --jinja "
        "--cache-prompt --cache-idle-slots "
        "--models-autoload --warmup --op-offload -e --escape --log-prefix "
        "--log-timestamps -no-ag --no-agent --no-ui-mcp-proxy --no-webui-mcp-proxy "
        "--perf --no-perf --no-warmup --reuse-port --no-log-prefix --no-log-timestamps --no-escape --no-host "
        "--no-cors-credentials --no-spec-draft-backend-sampling"
    ),
    # they do not change answers
    1: (
        "--threads-http --prio --prio-batch --poll --poll-batch --log-colors -fitc --fit-ctx -sps "
        "--slot-prompt-similarity -cms --checkpoint-min-step -dt --defrag-thold "
        "--spec-draft-prio --prio-draft --spec-draft-poll --poll-draft --spec-draft-prio-batch "
        "--prio-batch-draft --spec-draft-poll-batch --poll-batch-draft"
    ),
}
"""The ignored options, by the number of their values."""

_ESSENTIAL: Final = {
    "use --help": "--usage",
    "completions for shells are installed with llama-duo": "--completion-bash",
    "use `lead list`": "-cl --cache-list",
    "use --model FILE or -hf USER/REPO[:QUANT]": (
        "-mu --model-url -dr --docker-repo --embd-gemma-default --fim-qwen-1.5b-default "
        "--fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec "
        "--fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default "
        "--vision-gemma-4b-default --vision-gemma-12b-default"
    ),
}
"""Refused options whose effect is required, so that nothing is run without it."""

_REFUSED: Final = {
    "name the projector with --mmproj FILE": "-mmu --mmproj-url",
    "send images in a request": "--image --media-path",
    "images are encoded one by one, on the CPU or with --mmproj-offload on the first GPU": (
        "-mmdev --mmproj-device --mtmd-batch-max-tokens"
    ),
    "the projector sets the number of tokens of an image. --image-max-tokens limits it": "--image-min-tokens",
    "only text and images are supported, no audio or video": (
        "--audio --video -mv --model-vocoder --video-fps --video-timestamp-interval --video-ffmpeg-dir"
    ),
    "the lead chooses the number of draft tokens. Use --policy fixed and --depth N to set it": (
        "--draft-min --draft-n-min --spec-draft-n-min "
        "--draft-p-min --draft-p-split --spec-draft-p-min --spec-draft-p-split"
    ),
    "simulated drafts are not supported. Use `lead plan`": ("--spec-synth-len --spec-synth-rates"),
    "use --draft-model for a draft model, and --ngram or --no-ngram for drafts from the text itself": (
        "--spec-type --spec-default -lcs --lookup-cache-static -lcd --lookup-cache-dynamic "
        "--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match --spec-ngram-simple-size-n "
        "--spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n "
        "--spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n "
        "--spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --spec-ngram-size-n --spec-ngram-size-m "
        "--spec-ngram-min-hits"
    ),
    "use --threads-draft": "--spec-draft-threads-batch -tbd --threads-batch-draft",
    "a draft model shares the lead's cores. For separate cores use --back FILE --back-cpus 6-7": (
        "--spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft "
        "--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft "
        "--spec-draft-cpu-strict-batch --cpu-strict-batch-draft"
    ),
    "use --cpus, such as --cpus 0-7": (
        "-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch "
        "--cpu-strict-batch --numa"
    ),
    "use --override-tensor, such as 'blk.[0-7].ffn_=CPU'": "-ncffn --n-cpu-ffn",
    "a draft model can be placed only by whole layers. Use --n-gpu-layers-draft and --device-draft": (
        "--spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-cpu-moe -cmoed "
        "--cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft"
    ),
    "options of models are read from TOML. Use --models-file": "--models-preset",
    "a request always loads its model": "--no-models-autoload",
    "the model file sets the pooling. Use --embedding-model or --rerank-model": (
        "--embedding --embeddings --rerank --reranking --pooling --embd-normalize"
    ),
    "the model file sets these values": (
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
        "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv "
        "--lora-init-without-apply "
        "--control-vector-layer-range --control-vector --control-vector-scaled -gan "
        "--grp-attn-n -gaw --grp-attn-w"
    ),
    "set it in the request": (
        "-p --prompt -f --file -bf --binary-file "
        "--grammar --grammar-file -j --json-schema -jf --json-schema-file -l --logit-bias -r "
        "--reverse-prompt"
    ),
    "serving files and running tools are not supported": (
        "--path --tools -ag --agent --tools-runtime --mcp-servers-config "
        "--mcp-servers-json --ui-mcp-proxy --webui-mcp-proxy"
    ),
    "the web UI has no settings": "--ui-config --webui-config --ui-config-file --webui-config-file",
    "the lead pings idle event streams every 15 to 30 seconds": "--sse-ping-interval",
    "use --chat-template-kwargs": ("--reasoning-effort --reasoning-preserve --no-reasoning-preserve"),
    "/completion returns the text as the model writes it": (
        "--skip-chat-parsing --no-skip-chat-parsing -sp --special"
    ),
    "this sampler is not supported": (
        "--mirostat --mirostat-lr --mirostat-ent --adaptive-target --adaptive-decay"
    ),
    "sampling always runs on the CPU": ("-bs --backend-sampling --spec-draft-backend-sampling"),
    "batching is always continuous": "-nocb --no-cont-batching",
    "chat templates are always Jinja; --chat-template sets another one": "--no-jinja",
    "only common prefixes of prompts are reused": "--cache-reuse",
    "set cache_prompt in the request": "--no-cache-prompt",
    "use --cache-ram 0 to keep only the texts of slots": "--no-cache-idle-slots",
    "use --ctx-size and --parallel, with --no-kv-unified": "--kv-unified-per-slot",
    "tensors are read as --load-mode says": "-lzm --lazy-mode",
    "tensors are not checked": "--check-tensors",
    "large batches run on the devices of --n-gpu-layers": "--no-op-offload",
    "pages of --cors-origins may use all methods and headers, but no cookies": (
        "--cors-methods --cors-headers --cors-credentials"
    ),
    "properties cannot be changed while the lead runs. Set options instead": "--props",
    "reasoning has no separate limit. Use --reasoning off, or --n-predict for the whole answer": (
        "--reasoning-budget --reasoning-budget-message"
    ),
    "use a reverse proxy to add a prefix": "--api-prefix",
    "use --log-level": ("--log-disable --log-file -lv --verbosity --log-verbosity"),
    "use --log-prompts, which writes them to the log": "--log-prompts-dir",
}
"""The refused options, by the reason for the refusal."""

LLAMA_SERVER: Final = Dialect(
    _SPELLINGS
    | {name: Spelling(variables=(f"LLAMA_ARG_{name.upper()}",)) for name in _BY_VARIABLE.split()}
    | {name: Spelling(each.spellings, each.variables) for name, each in settable_parameters().items()},
    {option: n_values for n_values, options in _IGNORED.items() for option in options.split()},
    {option: reason for reason, options in (_REFUSED | _ESSENTIAL).items() for option in options.split()},
    frozenset(" ".join(_ESSENTIAL.values()).split()),
)
