"""The tokenizer processes: what is done with a client's text before the engine sees a request.

Chat templates, tokenizing and compiling grammars take time and memory that a client chooses, partly in native
code. So it is done in processes that may be killed: `pool` and `workers` are the front's side, `job_handler`
is what `shared.fork_server` and its forks run, `request_preparer` has the jobs.
"""
