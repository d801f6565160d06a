#!/bin/sh
# Makes the shipped model and all test data anew, in place: models/line-parts and tests/data. Run it from the
# repository's root. Needs ffmpeg with libx264, the packages of scripts/models/requirements.txt, and cargo.
# See scripts/models/README.md. Neither setup nor tests run this.
set -eu
export OMP_NUM_THREADS=1
tools=scripts/models
work=${WORK:-target/models}
shipped=models/line-parts/1.0.0
tests=tests/data/models
mkdir -p "$work"

python3 "$tools/belt.py" --video tests/data/belt.mp4 --frames 250 --seed 7
python3 "$tools/belt.py" --video tests/data/belt_mjpg.avi --frames 75 --seed 11
python3 "$tools/belt.py" --train "$work/train" --count 1200 --seed 1
python3 "$tools/belt.py" --train "$work/val" --count 200 --seed 2

model=$shipped/factory_tiny.onnx
v2=$tests/line-parts-v2/1.0.0/factory_tiny_v2.onnx
bad=$tests/line-parts-bad/1.0.0/factory_tiny_bad.onnx
int8=$tests/line-parts-int8/1.0.0/factory_tiny_int8.onnx
e2e=$tests/line-parts-e2e/1.0.0/factory_tiny_e2e.onnx
python3 "$tools/train.py" --data "$work/train" --val "$work/val" --seed 1 --epochs 20 --out "$model"
python3 "$tools/train.py" --data "$work/train" --val "$work/val" --seed 2 --epochs 24 --out "$v2"
python3 "$tools/variants.py" bad "$model" "$bad"
python3 "$tools/variants.py" int8 "$model" "$int8" --data "$work/train"
python3 "$tools/variants.py" e2e "$model" "$e2e"
python3 "$tools/golden.py" "$model" "$shipped"
python3 "$tools/evaluate.py" --data "$work/val" --video tests/data/belt.mp4 "$model" "$v2" "$int8" "$e2e" "$bad"

for bundle in "$shipped" "$tests"/line-parts-*/1.0.0; do
    cargo run --quiet -- model pack "$bundle"
done
