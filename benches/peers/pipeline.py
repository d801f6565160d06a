"""Peer 2, a published product: the InferencePipeline of Roboflow's `inference`, with the same model as its own logic.

The pipeline opens and decodes the videos on threads of its own, hands over one frame of each as a batch, and dispatches
what comes back; detector and message are peer 1's.
"""

import os

# The model registry and usage reports need a network and a key; the logic is ours, so neither is wanted.
os.environ.update(
    TELEMETRY_OPT_OUT="True",
    DISABLE_VERSION_CHECK="True",
    METRICS_ENABLED="False",
    LOG_LEVEL="ERROR",
    MODELS_CACHE_AUTH_ENABLED="False",
    USE_INFERENCE_MODELS="False",
    **{
        f"{model}_ENABLED": "False"
        for model in (
            "PALIGEMMA FLORENCE2 QWEN_2_5 CORE_MODEL_SAM CORE_MODEL_SAM2 CORE_MODEL_CLIP CORE_MODEL_GAZE SMOLVLM2 "
            "DEPTH_ESTIMATION MOONDREAM2 CORE_MODEL_TROCR CORE_MODEL_GROUNDINGDINO CORE_MODEL_YOLO_WORLD CORE_MODEL_PE"
        ).split()
    },
)

import argparse  # noqa: E402
import time  # noqa: E402

from detector import Detector, Reporter, arguments  # noqa: E402
from inference import InferencePipeline  # noqa: E402
from usual import Outlet  # noqa: E402


def main():
    options = arguments(argparse.ArgumentParser(description=__doc__)).parse_args()
    detector, reporter, outlet = Detector(options), Reporter(options), Outlet(options.port)

    def look(frames):
        decoded = time.monotonic()
        tensor = detector.tensor(len(frames))
        backs = [detector.fill(frame.image, slot) for frame, slot in zip(frames, tensor)]
        prepared = time.monotonic()
        outputs = detector.run(tensor)
        run = time.monotonic()
        results = []
        for output, back in zip(outputs, backs):
            found = detector.decode(output, back)
            results.append((back[3:], found, (decoded, decoded, prepared, run, time.monotonic())))
        return results

    def publish(results, frames):
        if not isinstance(frames, list):
            results, frames = [results], [frames]
        for result, frame in zip(results, frames):
            if frame is not None:
                outlet.publish(*reporter.message(f"c{frame.source_id or 0}", frame.frame_id, *result))

    pipeline = InferencePipeline.init_with_custom_logic(
        video_reference=options.video if len(options.video) > 1 else options.video[0],
        on_video_frame=look,
        on_prediction=publish,
        max_fps=options.rate_max,
    )
    pipeline.start(use_main_thread=True)
    pipeline.join()
    outlet.close()


if __name__ == "__main__":
    main()
