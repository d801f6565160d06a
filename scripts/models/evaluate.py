#!/usr/bin/env python3
"""Prints the table in README.md: AP50 and recall of models on a folder of images and on the video, and their latency.

  evaluate.py --data DIR --video tests/data/belt.mp4 MODEL.onnx ...

Recall and precision are taken at score >= 0.4. Latency is the median of one
image on one thread of ONNX Runtime, without pre- and post-processing.
"""
import argparse
import json
import time
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort

import kit


def video(path):
    """Yields (BGR frame, true boxes, true classes)."""
    cap = cv2.VideoCapture(str(path))
    for line in open(path.with_suffix(".gt.jsonl")):
        ok, img = cap.read()
        assert ok, "the video is shorter than its ground truth"
        objects = json.loads(line)["objects"]
        box = np.array([[o["box"][k] for k in "xywh"] for o in objects], float).reshape(-1, 4)
        box[:, 2:] += box[:, :2]
        yield img, box, np.array([kit.CLASSES.index(o["label"]) for o in objects], int)


def session(path, threads=1):
    o = ort.SessionOptions()
    o.intra_op_num_threads = o.inter_op_num_threads = threads
    return ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])


def latency(s, n=100):
    size = s.get_inputs()[0].shape[2]
    x = {s.get_inputs()[0].name: np.random.default_rng(0).random((1, 3, size, size), np.float32)}
    times = []
    for _ in range(n):
        t = time.perf_counter()
        s.run(None, x)
        times.append(time.perf_counter() - t)
    return np.median(times) * 1e3


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--video", type=Path, required=True)
    ap.add_argument("models", type=Path, nargs="+")
    args = ap.parse_args()
    print("| model | set | " + " | ".join(f"AP50 {c}" for c in kit.CLASSES) + " | mAP50 | recall | precision | ms |")
    print("|---" * (len(kit.CLASSES) + 6) + "|")
    for path in args.models:
        s = session(path)
        ms = latency(s)
        for name, frames in (("held out", kit.load_yolo(args.data)), (args.video.name, video(args.video))):
            table = kit.evaluate([(*kit.detect(s, img, 0.05), box, cls) for img, box, cls in frames])
            ap50 = [v[0] for v in table.values()]
            total = sum(v[3] for v in table.values())
            recall = sum(v[1] * v[3] for v in table.values()) / total
            precision = np.mean([v[2] for v in table.values()])
            cells = [f"{v:.3f}" for v in (*ap50, np.mean(ap50), recall, precision)]
            print(f"| {path.name} | {name} | " + " | ".join(cells) + f" | {ms:.1f} |", flush=True)


if __name__ == "__main__":
    main()
