#!/bin/sh
# Rebuild the demo pair from nothing, in the current folder: about two hours on two cores with AMX.
#   python3 -m venv venv && venv/bin/pip install -r requirements.txt && PYTHON=venv/bin/python ./run.sh
# Corpus, tokenizer and packing are seeded and repeat exactly. The steps below are those of the shipped
# weights; those runs were paced by the clock (--minutes), so the learning rates differ a little.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-4000}  # do not spin for long when the machine is shared

corpus() { "$python" "$here/corpus.py" "$@"; }
pack() { "$python" "$here/pack.py" "$@"; }
train() { "$python" "$here/train.py" --minutes 100000 "$@"; }

# 1: all kinds of dialogues, mostly stories; the tokenizer is learned here
corpus --out data
"$python" "$here/tokenizer.py" --data data --out data/tokenizer.json
pack --data data
# 2 and 3: more small skills, smaller sums, and short answers weigh more in the loss
corpus --out data2 --seed 11 --mix 0.27 0.25 0.44 0.04 --max-number 12
pack --data data2 --boost 3 --seed 12
corpus --out data3 --seed 21 --mix 0.27 0.20 0.50 0.03 --max-number 12 --hard 3
pack --data data3 --boost 4 --seed 22
# 4: more and more unusual names, and questions beyond the domain
corpus --out data4 --dialogues 60000 --seed 31 --mix 0.43 0.20 0.27 0.10 --max-number 12 --hard 2 --wide
pack --data data4 --boost 3 --seed 32
# 5 and 6: stories that follow the trouble that was asked for
corpus --out data5 --dialogues 40000 --seed 41 --mix 0.55 0.15 0.25 0.05 --max-number 12 --hard 2 --wide \
  --trouble 0.85
pack --data data5 --boost 3 --opening 8 --seed 42
corpus --out data6 --dialogues 60000 --seed 51 --mix 0.75 0.08 0.14 0.03 --max-number 12 --hard 2 --wide \
  --trouble 0.95 --begin 0.8
pack --data data6 --boost 3 --opening 8 --seed 52

target() { train --preset target "$@"; }
target --out ckpt/t3.pt --data data --steps 4492 --until 0.334
target --out ckpt/t3.pt --data data2 --steps 4492 --until 0.601 --resume
target --out ckpt/t3.pt --data data3 --steps 4492 --resume
target --out ckpt/t4.pt --data data4 --steps 645 --lr 6e-4 --warmup 20 --seed 7 --init ckpt/t3.pt
target --out ckpt/t5.pt --data data5 --steps 400 --lr 8e-4 --warmup 20 --seed 8 --init ckpt/t4.pt
target --out ckpt/t6.pt --data data6 --steps 335 --until 0.896 --lr 1e-3 --warmup 20 --seed 10 --init ckpt/t5.pt
target --out ckpt/t7.pt --data data5 --steps 111 --lr 4e-4 --warmup 20 --seed 11 --init ckpt/t6.pt

# the stories learned last and the small skills learned before are both best in between
"$python" "$here/blend.py" ckpt/t4.pt ckpt/t7.pt 0.75 ckpt/target.pt

draft() { train --preset draft "$@"; }
draft --out ckpt/d1.pt --data data2 --steps 1200 --until 0.25 --lr 3e-3 --teacher ckpt/t3.pt
draft --out ckpt/d2.pt --data data4 --steps 1280 --until 0.39 --lr 3e-3 --warmup 50 --seed 9 \
  --teacher ckpt/t4.pt --init ckpt/d1.pt
draft --out ckpt/draft.pt --data data5 --steps 173 --lr 2e-3 --warmup 20 --seed 12 \
  --teacher ckpt/t7.pt --init ckpt/d2.pt

for role in target draft; do
  for type in f16 q8_0; do
    "$python" "$here/export.py" --ckpt "ckpt/$role.pt" --role "$role" --name "spec-demo-$role" \
      --type "$type" --out "out/$role-$type.gguf" --check "out/$role-$type.gguf"
  done
done
"$python" "$here/eval.py" --target out/target-f16.gguf --draft out/draft-f16.gguf --report out/evaluation.md
"$python" "$here/faith.py" --model out/target-f16.gguf --stories 40
