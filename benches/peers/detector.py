"""What the Python peers share: a model of the yolov8 family on ONNX Runtime, and the message about a frame.

Written as people write it, and to win: pictures are shrunk before anything else is done to them, the tensor is made
once and filled in place, and only rows over the threshold are touched after the model.
"""

import datetime
import json
import time
import uuid

import cv2
import numpy
import onnxruntime


class Detector:
    """One model on one thread."""

    def __init__(self, options):
        cv2.setNumThreads(1)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(options.model, settings, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0]
        self.size = self.input.shape[2]
        self.score, self.iou = options.score, options.iou
        self.tensors = {}
        self.padded = {}

    def tensor(self, count):
        """The input of a batch, made once for each size of a batch."""
        if count not in self.tensors:
            self.tensors[count] = numpy.empty((count, 3, self.size, self.size), numpy.float32)
        return self.tensors[count]

    def fill(self, picture, into):
        """Letterboxes a BGR picture into one slot of the tensor; returns the way back."""
        height, width = picture.shape[:2]
        scale = min(self.size / width, self.size / height)
        small = round(width * scale), round(height * scale)
        left, top = (self.size - small[0]) // 2, (self.size - small[1]) // 2
        if (width, height) not in self.padded:
            self.padded[width, height] = numpy.full((self.size, self.size, 3), 114, numpy.uint8)
        padded = self.padded[width, height]
        inside = padded[top : top + small[1], left : left + small[0]]
        cv2.resize(picture, small, dst=inside, interpolation=cv2.INTER_LINEAR)
        blob = cv2.dnn.blobFromImage(padded, 1 / 255, swapRB=True)
        numpy.copyto(into, blob[0])
        return scale, left, top, width, height

    def run(self, tensor):
        """The model's first output: [frames, 4 + classes, anchors]."""
        return self.session.run(None, {self.input.name: tensor})[0]

    def decode(self, output, back):
        """Boxes (x, y, w, h in the picture), scores and classes of one frame, best first."""
        scores = output[4:]
        best = scores.max(0)
        keep = numpy.flatnonzero(best >= self.score)
        if not len(keep):
            return []
        best, classes = best[keep], scores[:, keep].argmax(0)
        center_x, center_y, wide, high = output[:4, keep]
        corner = numpy.stack([center_x - wide / 2, center_y - high / 2, wide, high], 1)
        alive = cv2.dnn.NMSBoxesBatched(corner, best, classes, self.score, self.iou)
        scale, left, top, width, height = back
        found = []
        for index in alive:
            x, y, w, h = corner[index]
            x1, y1 = max((x - left) / scale, 0), max((y - top) / scale, 0)
            x2, y2 = min((x + w - left) / scale, width), min((y + h - top) / scale, height)
            found.append((classes[index], best[index], x1, y1, x2 - x1, y2 - y1))
        return found


class Reporter:
    """Makes the message about a frame: the same information as Gantry's."""

    def __init__(self, options):
        self.node, self.prefix = "bench", options.prefix
        self.boot_id = str(uuid.uuid4())
        self.model = {"name": options.name, "version": "1.0.0", "device": "cpu0"}
        with open(options.labels, encoding="utf-8") as labels:
            self.labels = labels.read().split("\n")
        self.sequences = {}

    def message(self, camera, frame_id, size, found, times):
        """Topic and payload. `times` are monotonic seconds: received, decoded, prepared, run, done."""
        self.sequences[camera] = self.sequences.get(camera, 0) + 1
        received, decoded, prepared, run, done = times
        at = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=time.monotonic() - received)
        stamp = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {
            "schema": "gantry.detections/1",
            "node": self.node,
            "camera": camera,
            "boot_id": self.boot_id,
            "seq": self.sequences[camera],
            "captured_at": stamp,
            "capture_clock": "file",
            "received_at": stamp,
            "age_ms": None,
            "model": self.model,
            "frame": {"id": frame_id, "width": size[0], "height": size[1]},
            "detections": [
                {
                    "label": self.labels[class_id],
                    "class_id": int(class_id),
                    "score": round(float(score), 4),
                    "box": {name: round(float(value), 1) for name, value in zip("xywh", box)},
                }
                for class_id, score, *box in found
            ],
            "stage_ms": {
                "video_decode": round((decoded - received) * 1e3, 3),
                "preprocess": round((prepared - decoded) * 1e3, 3),
                "infer": round((run - prepared) * 1e3, 3),
                "postprocess": round((done - run) * 1e3, 3),
            },
        }
        return f"{self.prefix}/{self.node}/camera/{camera}/detections", json.dumps(event, separators=(",", ":"))


def arguments(parser):
    """The options that every peer takes."""
    parser.add_argument("--model", required=True, help="ONNX file")
    parser.add_argument("--name", required=True, help="the model's name")
    parser.add_argument("--labels", required=True, help="names of the classes, one a line")
    parser.add_argument("--score", type=float, default=0.25)
    parser.add_argument("--iou", type=float, default=0.5)
    parser.add_argument("--port", type=int, required=True, help="of the broker on this machine")
    parser.add_argument("--prefix", default="gantry", help="what each topic begins with")
    parser.add_argument("--rate-max", type=float, help="at most so many frames a second of the video are looked at")
    parser.add_argument("video", nargs="+", help="one camera each")
    return parser
