#!/bin/sh
# Two draft models for the shipped target that have other tokenizers, in the current folder: a byte-level BPE of
# 2048 entries, and one of 8192 with another pre-tokenization. For measurements: python -m bench acceptance FILES, at dbf6226.
#   python3 -m venv venv && venv/bin/pip install -r requirements.txt
#   PYTHON=venv/bin/python ./other_tokenizers.sh /path/to/shared/model_files/draft-f16.gguf
# They begin with the weights of the shipped draft model and learn the new tokens from dialogues; MINUTES bounds that.
# The merges come from other dialogues than those of the shipped tokenizer.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
minutes=${MINUTES:-100000}
shipped=$1

corpus() { "$python" "$here/corpus.py" "$@"; }
corpus --out data4 --dialogues 20000 --seed 31 --mix 0.43 0.20 0.27 0.10 --max-number 12 --hard 2 --wide
corpus --out data5 --dialogues 10000 --seed 41 --mix 0.55 0.15 0.25 0.05 --max-number 12 --hard 2 --wide \
  --trouble 0.85

draft() {  # draft SIZE PRE-TOKENIZATION STEPS
  out=bpe$1
  mkdir -p "$out"
  ln -sf ../data5/train.jsonl "$out/train.jsonl"
  "$python" "$here/tokenizer.py" --data data4 --size "$1" --pre "$2" --out "$out/tokenizer.json"
  "$python" "$here/pack.py" --data "$out" --tokenizer "$out/tokenizer.json" --boost 3 --seed 42
  "$python" "$here/transplant.py" --model "$shipped" --tokenizer "$out/tokenizer.json" --out "$out/start.pt"
  "$python" "$here/train.py" --preset draft --vocab "$1" --data "$out" --init "$out/start.pt" --out "$out/draft.pt" \
    --minutes "$minutes" --steps "$3" --lr 1e-3 --warmup 20 --seed 9 --threads 1 --eager --resume
  for type in f16 q8_0; do
    "$python" "$here/export.py" --ckpt "$out/draft.pt" --tokenizer "$out/tokenizer.json" --role draft \
      --name "spec-demo-draft-bpe$1" --type "$type" --out "out/draft-bpe$1-$type.gguf" \
      --check "out/draft-bpe$1-$type.gguf"
  done
}
draft 2048 gpt-2 1600 &
first=$!
draft 8192 qwen2 400
wait $first
