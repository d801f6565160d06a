"""Whether a program found what is there: nobody is quick by doing nothing."""

import json
from pathlib import Path

IOU = 0.5


class Truth:
    """What is on the belt in each frame, as a video shows it that was cut out of the belt's and enlarged."""

    def __init__(self, path, top=0, height=480, scale=1.0):
        self.frames = []
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            seen = []
            for found in json.loads(line)["objects"]:
                box = found["box"]
                y1, y2 = max(box["y"] - top, 0), min(box["y"] + box["h"] - top, height)
                # Of a part that the edge cuts, half or more must be left to be asked for; what is found of less is let be.
                whole = (y2 - y1) / box["h"]
                if whole > 0:
                    cut = {"x": box["x"] * scale, "y": y1 * scale, "w": box["w"] * scale, "h": (y2 - y1) * scale}
                    seen.append((found["label"], cut, whole >= 0.5))
            self.frames.append(seen)

    def score(self, events):
        """Recall and precision over events; the video is repeated, so is the truth."""
        wanted = hit = made = right = 0
        for event in events:
            seen = self.frames[(event["frame"]["id"] - 1) % len(self.frames)]
            found = event["detections"]
            wanted += sum(must for _, _, must in seen)
            hit += sum(must and any(same(label, box, one) for one in found) for label, box, must in seen)
            made += len(found)
            right += sum(any(same(label, box, one) for label, box, _ in seen) for one in found)
        return (hit / wanted if wanted else 1.0), (right / made if made else 1.0)


def agreement(events, others):
    """How much of what others found in the same frames is found here, and the other way round: the smaller share."""
    theirs = {event["frame"]["id"]: event["detections"] for event in others}
    both = [(event["detections"], theirs[event["frame"]["id"]]) for event in events if event["frame"]["id"] in theirs]

    def share(of, among):
        hits = [
            any(same(one["label"], one["box"], other) for other in among(pair)) for pair in both for one in of(pair)
        ]
        return sum(hits) / len(hits) if hits else 0.0

    return min(share(lambda p: p[0], lambda p: p[1]), share(lambda p: p[1], lambda p: p[0]))


def same(label, box, found):
    return label == found["label"] and iou(box, found["box"]) >= IOU


def iou(a, b):
    width = min(a["x"] + a["w"], b["x"] + b["w"]) - max(a["x"], b["x"])
    height = min(a["y"] + a["h"], b["y"] + b["h"]) - max(a["y"], b["y"])
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / (a["w"] * a["h"] + b["w"] * b["h"] - width * height)
