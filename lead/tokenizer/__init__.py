"""The tokenizer processes: what is done with a client's text before the engine sees a request.

Chat templates, tokenizing and compiling grammars take time and memory that a client chooses, partly in native
code. So a process does it that may be killed: `pool` and `fork_server` are the front's side, `forking` is the
process that has loaded the vocabulary and forks, `worker_loop` a fork, `preparation` what one does.
"""
