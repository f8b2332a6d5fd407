"""Reading models of other projects: llama2.c checkpoints and GPT-2 in Hugging Face folders become GGUF files.

`read_conversion` in `shared.models.model_file` recognises a source and checks all that its headers say;
`Conversion.file` is the GGUF file to write.
"""
