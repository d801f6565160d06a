#!/usr/bin/env python3
"""Writes the golden cases of the decoders: outputs of a model, and what must be read from them.

  make_decoder_goldens.py tests/data/decoders

Each case is one JSON file, `<family>/<case>.json`. What must be found is computed here in float64 from the definition,
with nothing of the decoders' code: letterbox, threshold, best class, way back, suppression, clipping. Numbers that JSON
does not have are the strings "nan", "inf" and "-inf". The cases follow from a seed, so a second run changes nothing.
"""
import json
import math
import sys
from pathlib import Path

import numpy as np


def letterbox(picture, size, resize="letterbox", align="center"):
    """Left, top, and input pixels per picture pixel across and down."""
    content = size
    if resize == "letterbox":
        scale = min(size[0] / picture[0], size[1] / picture[1])
        content = tuple(min(max(1, math.floor(p * scale + 0.5)), s) for p, s in zip(picture, size))
    left, top = ((s - c) // 2 for s, c in zip(size, content)) if align == "center" else (0, 0)
    return left, top, content[0] / picture[0], content[1] / picture[1]


def iou(a, b):
    across = min(a[2], b[2]) - max(a[0], b[0])
    down = min(a[3], b[3]) - max(a[1], b[1])
    if across <= 0 or down <= 0:
        return 0.0
    both = across * down
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def rows(case, table):
    """Class, score and corners in the input of each row of [A, channels] that reaches the threshold."""
    for row in table.astype(np.float64):
        if case["family"] == "yolo_end_to_end":
            corners, score, cls = row[:4], row[4], row[5]
            if not np.isfinite(cls) or not 0 <= math.floor(cls + 0.5) < case["classes"]:
                continue
            cls = math.floor(cls + 0.5)
        else:
            scores = np.where(np.isfinite(row[-case["classes"]:]), row[-case["classes"]:], -np.inf)
            cls = int(np.argmax(scores))
            score = scores[cls] * (row[4] if case["family"] == "yolov5" else 1.0)
            if case["family"] == "yolov5" and not row[4] >= case["score_min"]:
                continue
            corners = [row[0] - row[2] / 2, row[1] - row[3] / 2, row[0] + row[2] / 2, row[1] + row[3] / 2]
        # The threshold is a float32 in the decoders, and so is the score.
        if np.isfinite(score) and np.float32(score) >= np.float32(case["score_min"]) and np.isfinite(corners).all():
            yield cls, score, corners


def detections(case, table):
    """What must be found in one frame's [A, channels]."""
    left, top, across, down = letterbox(case["picture"], case["input"], case["resize"], case["align"])
    width, height = case["picture"]
    found = []
    for cls, score, (x1, y1, x2, y2) in rows(case, table):
        box = [(x1 - left) / across, (y1 - top) / down, (x2 - left) / across, (y2 - top) / down]
        outside = box[2] <= 0 or box[3] <= 0 or box[0] >= width or box[1] >= height
        if not outside and box[2] > box[0] and box[3] > box[1]:
            found.append((cls, score, box))
    found.sort(key=lambda d: -np.float32(d[1]))  # a stable sort: equal scores keep their order
    if case["family"] != "yolo_end_to_end":
        kept = []
        for d in found:
            rivals = (k for k in kept if case["suppression"] == "agnostic" or k[0] == d[0])
            overlaps = [iou(k[2], d[2]) for k in rivals]
            # A case in which rounding could decide proves nothing.
            assert all(o == case["iou"] or abs(o - case["iou"]) > 1e-4 for o in overlaps), case["case"]
            if not any(o > case["iou"] for o in overlaps):
                kept.append(d)
        found = kept
    cut = [(c, s, [max(b[0], 0.0), max(b[1], 0.0), min(b[2], width), min(b[3], height)]) for c, s, b in found]
    return [{"class_id": c, "score": s, "box": {"x": b[0], "y": b[1], "w": b[2] - b[0], "h": b[3] - b[1]}}
            for c, s, b in cut]


def written(value):
    value = np.float32(value)
    if np.isfinite(value):
        return float(str(value))  # the shortest number that is this float32
    return "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"


def write(out, case, tables, transposed=False):
    """`tables` is [N, A, channels]; `transposed` says that the output has the two the other way round."""
    tables = np.asarray(tables, np.float32)
    case = {"resize": "letterbox", "align": "center", "suppression": "per_class", "iou": 0.45, "score_min": 0.25, "slot": 0,
            **case}
    output = tables.transpose(0, 2, 1) if transposed else tables
    with np.errstate(invalid="ignore"):  # NaN and infinity are in some of the tables on purpose
        found = detections(case, tables[case["slot"]])
    case |= {"shape": list(output.shape), "output": [written(v) for v in output.ravel()], "expect": found}
    path = out / case["family"] / (case.pop("case") + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in case.items())
    path.write_text("{\n" + lines + "\n}\n")
    print(f"{path}: {len(found)} of {tables.shape[1]}")


def scene(seed, case, anchors, objects):
    """[A, 4 + C]: clusters of boxes around true objects with scores of their own, and noise below the threshold."""
    rng = np.random.default_rng(seed)
    width, height = case["input"]
    classes = case["classes"]
    centres = rng.uniform(0.1, 0.9, (objects, 2)) * (width, height)
    sizes = rng.uniform(0.1, 0.3, (objects, 2)) * (width, height)
    kinds = rng.integers(0, classes, objects)
    table = np.zeros((anchors, 4 + classes))
    which = rng.integers(0, objects, anchors)
    table[:, :2] = centres[which] + rng.normal(0, 0.02, (anchors, 2)) * (width, height)
    table[:, 2:4] = sizes[which] * rng.uniform(0.9, 1.1, (anchors, 2))
    table[:, 4:] = rng.uniform(0, 0.2, (anchors, classes))
    sure = rng.random(anchors) < 0.5
    table[np.arange(anchors), 4 + kinds[which]] = np.where(sure, rng.uniform(0.3, 0.98, anchors), 0.2)
    return table


def with_objectness(table, seed):
    objectness = np.random.default_rng(seed).uniform(0.2, 1.0, (len(table), 1))
    return np.hstack([table[:, :4], objectness, table[:, 4:]])


def box(corners, *scores):
    """A row of [A, 4 + C] from corners in the input."""
    x1, y1, x2, y2 = corners
    return [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, *scores]


def yolov8(out):
    base = {"family": "yolov8", "classes": 4, "picture": [640, 480], "input": [256, 256]}
    table = scene(1, base, 40, 6)
    write(out, {**base, "case": "clusters"}, [table], transposed=True)
    write(out, {**base, "case": "transposed"}, [table])
    write(out, {**base, "case": "agnostic", "suppression": "agnostic"}, [table], transposed=True)
    write(out, {**base, "case": "second_of_a_batch", "slot": 1}, [scene(2, base, 30, 4), scene(3, base, 30, 4)], True)
    for name, change in {"odd_padding": {"picture": [853, 479], "input": [256, 255]}, "tall": {"picture": [479, 853]},
                         "enlarged": {"picture": [37, 23]}, "top_left": {"align": "top_left"},
                         "stretched": {"resize": "stretch", "picture": [853, 479], "input": [320, 192]}}.items():
        case = {**base, **change, "case": name}
        write(out, case, [scene(len(name), case, 30, 5)], transposed=True)
    # As many channels as anchors: the usual order of the family counts, so the table lies transposed in the output.
    write(out, {**base, "case": "square"}, [scene(9, base, 8, 3)], transposed=True)
    write(out, {**base, "case": "one_class", "classes": 1}, [scene(10, {**base, "classes": 1}, 20, 4)], transposed=True)
    write(out, {**base, "case": "nothing", "score_min": 0.999}, [table], transposed=True)

    # 640x480 lies in 256x256 at (0, 32), 0.4 input pixels a picture pixel: 0.16 of them are 0.4 of the picture's.
    edges = [box([-0.16, 100, 40, 140], .9, 0, 0, 0), box([200, 60, 256.16, 90], 0, .8, 0, 0),
             box([100, 31.84, 140, 60], 0, 0, .7, 0), box([100, 200, 140, 224.16], 0, 0, 0, .6),
             box([-20, 0, 300, 300], .5, 0, 0, 0), box([10, 2, 60, 31], 0, .95, 0, 0), box([10, 225, 60, 250], 0, .95, 0, 0),
             box([256.5, 100, 290, 140], .95, 0, 0, 0), box([100, 100, 100, 140], .9, 0, 0, 0),
             box([150, 150, 140, 160], .9, 0, 0, 0)]
    write(out, {**base, "case": "edges"}, [edges], transposed=True)

    nan, inf = np.nan, np.inf
    good = [50, 100, 20, 20]
    wild = [[*good, nan, nan, nan, nan], [*good, inf, 0, 0, 0], [*good, -inf, -inf, -inf, -inf], [*good, nan, .9, 0, 0],
            [150, 100, 20, 20, inf, 0, .8, nan], [nan, 100, 20, 20, .9, 0, 0, 0], [50, inf, 20, 20, .9, 0, 0, 0],
            [50, 100, nan, 20, .9, 0, 0, 0], [50, 100, 20, -inf, .9, 0, 0, 0], [50, 100, inf, 20, .9, 0, 0, 0],
            [3e38, 100, 3e38, 20, .9, 0, 0, 0], [90, 150, 20, 20, 0, 0, -inf, .7]]
    write(out, {**base, "case": "not_numbers"}, [wild], transposed=True)
    write(out, {**base, "case": "not_numbers_transposed"}, [wild])

    # The same score everywhere: the order of the output decides, and of one anchor's classes the first.
    equal = [box([10 + 40 * (i % 3) + i, 60, 40 + 40 * (i % 3) + i, 100], *[0.5 if i % 2 <= c else 0 for c in range(4)])
             for i in range(12)]
    write(out, {**base, "case": "equal_scores"}, [equal], transposed=True)
    write(out, {**base, "case": "equal_scores_agnostic", "suppression": "agnostic"}, [equal], transposed=True)

    low = np.float32(0.25)
    edge = [box([20 * i, 60, 20 * i + 15, 100], float(score), 0, 0, 0)
            for i, score in enumerate([low, np.nextafter(low, np.float32(0)), np.nextafter(low, np.float32(1)), 0.2, 1.5])]
    write(out, {**base, "case": "threshold_is_inclusive"}, [edge], transposed=True)
    # Overlap of exactly one half stays at a limit of one half. The way back multiplies by 2.5, which floats do exactly.
    half = [box([40, 60, 80, 100], .9, 0, 0, 0), box([40, 60, 60, 100], .8, 0, 0, 0), box([40, 60, 61, 100], .7, 0, 0, 0)]
    write(out, {**base, "case": "overlap_at_the_limit", "iou": 0.5}, [half], transposed=True)


def yolov5(out):
    base = {"family": "yolov5", "classes": 3, "picture": [640, 480], "input": [256, 256]}
    table = with_objectness(scene(20, base, 40, 6), 21)
    write(out, {**base, "case": "clusters"}, [table])
    write(out, {**base, "case": "transposed"}, [table], transposed=True)
    write(out, {**base, "case": "agnostic", "suppression": "agnostic"}, [table])
    write(out, {**base, "case": "second_of_a_batch", "slot": 1}, [table, with_objectness(scene(22, base, 40, 6), 23)])
    case = {**base, "case": "odd_padding", "picture": [853, 479]}
    write(out, case, [with_objectness(scene(24, case, 30, 5), 25)])
    write(out, {**base, "case": "square"}, [with_objectness(scene(26, base, 8, 3), 27)])
    nan, inf = np.nan, np.inf
    rows = [[50, 100, 20, 20, .5, .5, 0, 0], [80, 100, 20, 20, .5, np.nextafter(np.float32(.5), np.float32(0)), 0, 0],
            [110, 100, 20, 20, nan, .9, 0, 0], [140, 100, 20, 20, inf, .9, 0, 0], [170, 100, 20, 20, .9, nan, .8, inf],
            [200, 100, 20, 20, 1, 0, 0, .25], [50, 150, 20, 20, .1, 1, 1, 1], [80, 150, 20, 20, .9, nan, nan, nan],
            [110, 150, 20, 20, .2, 2, 0, 0], [140, 150, 20, 20, 0, inf, .9, 0]]
    write(out, {**base, "case": "objectness"}, [rows])
    write(out, {**base, "case": "objectness_transposed"}, [rows], transposed=True)


def end_to_end(out):
    base = {"family": "yolo_end_to_end", "classes": 4, "picture": [640, 480], "input": [256, 256]}
    rng = np.random.default_rng(30)
    corners = rng.uniform(0, 200, (12, 2))
    rows = np.hstack([corners, corners + rng.uniform(20, 60, (12, 2)), rng.uniform(0.1, 0.95, (12, 1)),
                      rng.integers(0, 4, (12, 1))])
    unused = np.zeros((8, 6))
    write(out, {**base, "case": "unsorted"}, [np.vstack([rows, unused])])
    ordered = rows[np.argsort(-rows[:, 4])]
    write(out, {**base, "case": "doubles_stay", "score_min": 0.0}, [np.vstack([ordered, ordered, unused])])
    write(out, {**base, "case": "second_of_a_batch", "slot": 1}, [np.vstack([rows, unused]), np.vstack([unused, ordered])])
    case = {**base, "case": "odd_padding", "picture": [853, 479], "align": "top_left"}
    write(out, case, [rows])
    nan, inf = np.nan, np.inf
    good = [100, 100, 140, 140]
    wild = [[*good, .9, 4], [*good, .9, -1], [*good, .8, 3], [*good, .7, -0.2], [*good, .6, 1.9999], [*good, .9, nan],
            [*good, .9, inf], [*good, nan, 1], [*good, inf, 1], [nan, 100, 140, 140, .9, 1], [100, 100, inf, 140, .9, 1],
            [140, 140, 100, 100, .9, 1], [100, 100, 300, 300, .5, 0], [-9, 40, -1, 60, .9, 0], [10, 226, 60, 250, .9, 0]]
    write(out, {**base, "case": "classes_and_numbers"}, [wild])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    for family in (yolov8, yolov5, end_to_end):
        family(Path(sys.argv[1]))
