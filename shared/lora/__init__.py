"""The ring for LoRA adapters."""
