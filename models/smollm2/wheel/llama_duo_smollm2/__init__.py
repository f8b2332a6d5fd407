"""smollm2-draft.gguf, a draft model for SmolLM2-135M-Instruct."""
