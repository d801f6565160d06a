#!/usr/bin/env python3
"""Writes a bundle's golden pictures and what its model must find in them, after checking that it does.

  golden.py models/line-parts/1.0.0/factory_tiny.onnx models/line-parts/1.0.0

Makes golden/*.png and *.jpg, and the `golden` section of model.yaml, which is its last. Pack the bundle afterwards:
gantry model pack models/line-parts/1.0.0

An expected object is a true one that the model finds (same label, IoU >= 0.7) whether the picture is shrunk by area,
bilinearly or by the nearest pixel; its `score_min` is the lowest of the three scores less 0.1. The box is the true one.
The script fails if the model misses an object or reports a false one.
"""
import sys
from pathlib import Path

import cv2
import numpy as np

import belt
import evaluate
import kit

FRAMES = [("640x480.png", 110, (640, 480)), ("800x600.jpg", 111, (800, 600)), ("640x360.jpg", 102, (640, 360)),
          ("480x480.png", 110, (480, 480)), ("480x640.jpg", 110, (480, 640)), ("1280x720.jpg", 103, (1280, 720))]


def scores(session, img, objects, shrink):
    """The score with which each object is found; fails if one is not, or if there are others."""
    box, score, cls = kit.detect(session, img, shrink=shrink)
    truth = np.array([[o["box"][k] for k in "xywh"] for o in objects])
    truth[:, 2:] += truth[:, :2]
    iou = kit.iou_matrix(truth, box)
    hit = iou.argmax(1)
    found = iou.max(1) >= 0.7
    found &= np.array([kit.CLASSES[cls[h]] == o["label"] for h, o in zip(hit, objects)])
    assert found.all() and len(box) == len(objects), f"{found.sum()} of {len(objects)} in {len(box)} detections"
    return score[hit]


def section(expected):
    """The `golden` section of a manifest."""
    lines = ["golden: # written by scripts/models/golden.py"]
    for name, objects in expected.items():
        lines += [f"  - image: golden/{name}", "    iou_min: 0.5", "    expect:"]
        for label, box, score_min in objects:
            sides = ", ".join(f"{side}: {box[side]:g}" for side in "xywh")
            lines.append(f"      - {{label: {label}, box: {{{sides}}}, score_min: {score_min:g}}}")
    return "\n".join(lines) + "\n"


def main(model, bundle):
    out = bundle / "golden"
    out.mkdir(exist_ok=True)
    session, expected = evaluate.session(model), {}
    for name, seed, size in FRAMES:
        img, objects = belt.Scene([2024, seed], size).frame(0)
        cv2.imwrite(str(out / name), img, [cv2.IMWRITE_JPEG_QUALITY, 90])
        img = cv2.imread(str(out / name))
        shrunk = (cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.INTER_NEAREST)
        low = np.min([scores(session, img, objects, s) for s in shrunk], 0)
        expected[name] = [(o["label"], o["box"], round(float(s) - 0.1, 2)) for o, s in zip(objects, low)]
        print(name, len(objects), "objects, lowest score %.2f" % low.min())
    manifest = bundle / "model.yaml"
    before = manifest.read_text().split("\ngolden:")[0]
    manifest.write_text(before + "\n" + section(expected))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
