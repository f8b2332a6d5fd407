"""The tokenizer processes, which handle a client's text before the engine sees a request.

Chat templates, tokenizing and compiling grammars take time and memory that a client chooses, partly in native
code. Therefore they run in processes that may be killed: `pool` and `workers` are the front's side,
`job_handler` runs in `shared.fork_server` and its forks, `request_preparer` has the jobs.
"""
