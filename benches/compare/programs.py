"""The programs that are compared, what they are given, and how each is called."""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "benches" / "peers"


@dataclass(frozen=True)
class Model:
    """A bundle, as far as peers need to know it; all are of the yolov8 family."""

    name: str
    folder: Path
    file: str
    size: int
    classes: int
    anchors: int

    @property
    def path(self):
        return self.folder / self.name / "1.0.0" / self.file

    @property
    def labels(self):
        return self.folder / self.name / "1.0.0" / "labels.txt"


TINY = Model("line-parts", ROOT / "models", "factory_tiny.onnx", 256, 4, 1344)
REAL = Model("coco", ROOT / "tests" / "data" / "models", "coco_ssdlite.onnx", 300, 80, 1917)


@dataclass(frozen=True)
class Scene:
    """What all programs look at: `cameras` times the same video, with one model. `frames` are those of the short run
    and of the long one, for each camera."""

    key: str
    title: str
    video: str
    width: int
    height: int
    model: Model
    cameras: int
    frames: tuple[int, int]
    rounds: int


@dataclass
class Tools:
    """Where everything is that was installed and built."""

    gantry: Path
    kernel: Path
    peers: Path
    usual: Path
    pipeline: Path
    runtime: Path
    work: Path


# What a program is: its short name, what it is called in tables, and whether it publishes.
DECODE, MODEL, KERNEL, GANTRY = "A", "B", "C", "G"
USUAL, PIPELINE, RGB, PLANES = "P1", "P2", "P3 rgb", "P3 planes"
PEER_KEYS = (USUAL, PIPELINE, RGB, PLANES)
TITLES = {
    DECODE: "decode alone: gst-launch, avdec_h264 into fakesink",
    MODEL: "model alone: ONNX Runtime on one prepared tensor",
    KERNEL: "preprocess alone: Gantry's pass on one picture",
    GANTRY: "Gantry, whole",
    USUAL: "Python script: OpenCV, ONNX Runtime, paho-mqtt",
    PIPELINE: "Roboflow inference: InferencePipeline, ONNX Runtime, paho-mqtt",
    RGB: "C++: GStreamer, videoconvert to RGB, OpenCV, ONNX Runtime, libmosquitto",
    PLANES: "C++: GStreamer, planes shrunk first, OpenCV, ONNX Runtime, libmosquitto",
}


def decode_alone(_tools, scene, videos, _target):
    words = ["gst-launch-1.0", "-q"]
    for video in videos:
        words += f"filesrc location={video} ! qtdemux ! h264parse ! avdec_h264 ! fakesink sync=false".split()
    return words


def model_alone(tools, scene, frames):
    model = scene.model
    return [
        tools.peers / "alone",
        "model",
        model.path,
        "images",
        "output0",
        model.size,
        model.classes,
        model.anchors,
        frames,
    ]


def kernel_alone(tools, scene, frames):
    return [tools.kernel, "i420", scene.width, scene.height, scene.model.size, frames]


def careful(variant):
    def command(tools, scene, videos, target):
        model = scene.model
        words = [tools.peers / "careful", variant, model.path, "images", "output0", model.size, model.classes]
        rate = target.get("rate_max", 0)
        return [*words, model.anchors, model.name, model.labels, target["port"], target["prefix"], rate, *videos]

    return command


def python(key, script):
    def command(tools, scene, videos, target):
        words = [getattr(tools, key) / "bin" / "python", PEERS / script, "--model", scene.model.path]
        words += ["--name", scene.model.name, "--labels", scene.model.labels]
        words += ["--port", target["port"], "--prefix", target["prefix"]]
        if "rate_max" in target:
            words += ["--rate-max", target["rate_max"]]
        return [*words, *videos]

    return command


def gantry(tools, scene, videos, target):
    """Its config is written beside the logs. A batch is one frame where there is one camera: nothing to wait for."""
    route = {"model": scene.model.name}
    camera = {}
    if "rate_max" in target:
        route["rate_max"] = target["rate_max"]
        camera["video_decode"] = "auto"
    config = {
        "node": "bench",
        "devices": [{"id": "cpu0", "backend": "onnxruntime", "threads": 1, "library": str(tools.runtime)}],
        "models": {"dir": str(scene.model.folder)},
        "cameras": [
            {"id": f"c{index}", "source": address(video), **camera, "detect": [route]}
            for index, video in enumerate(videos)
        ],
        "batching": {"size_max": scene.cameras},
        "publish": {"detections": "every_frame", "mqtt": {"broker": f"mqtt://127.0.0.1:{target['port']}"}},
    }
    config["publish"]["mqtt"] |= {"prefix": target["prefix"], "qos": 1}
    return run_gantry(tools, config)


def run_gantry(tools, config):
    """A command that runs Gantry with this config; JSON is YAML."""
    file = tools.work / "gantry.yaml"
    file.write_text(json.dumps(config, indent=1))
    return [tools.gantry, "run", "-c", file]


def address(video):
    return str(video) if "://" in str(video) else f"file://{video}"


WHOLE = {
    GANTRY: gantry,
    USUAL: python("usual", "usual.py"),
    PIPELINE: python("pipeline", "pipeline.py"),
    RGB: careful("rgb"),
    PLANES: careful("planes"),
}
