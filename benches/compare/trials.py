"""The rows that are no contest of videos: what Gantry does with cameras that it makes itself and a scripted device, and
what a camera costs that wants one frame a second."""

import datetime
import json
import subprocess
import time

import programs
import videos
from measure import Broken, Live, free_port
from stats import percentile

SETTLE_S = 2.0
# Until Gantry knows that a camera's key frames suffice, which takes it three of them.
LEARN_S = 5.0


def pattern(index, rate, size="320x240"):
    return {"id": f"c{index}", "source": f"test://pattern?size={size}&rate={rate}"}


def scripted(bench, cameras, fake, **more):
    """The config of cameras on the backend `fake`."""
    config = {
        "node": "bench",
        "devices": [{"id": "cpu0", "backend": "fake", "fake": fake}],
        "models": {"dir": str(programs.TINY.folder)},
        "cameras": cameras,
        "publish": {"detections": "every_frame", "mqtt": {"broker": f"mqtt://127.0.0.1:{bench.broker.port}"}},
        **more,
    }
    prefix = bench.broker.prefix()
    config["publish"]["mqtt"] |= {"prefix": prefix, "queue": 100000}
    return config, prefix


def watch(bench, command, prefix, cameras, seconds, settle=SETTLE_S):
    """Lets a program run; returns its processor seconds and its messages of a window some time after every camera was
    seen."""
    with Live(command, bench.cores.program, bench.log) as live:
        deadline = time.monotonic() + 30
        while len({event["camera"] for event in bench.broker.read(prefix)}) < cameras:
            if time.monotonic() > deadline:
                raise Broken(f"{live.name} has not shown every camera within 30 s")
            live.cpu_s()
            time.sleep(0.1)
        time.sleep(settle)
        before = len(bench.broker.read(prefix))
        cpu, wall = live.cpu_s(), time.monotonic()
        time.sleep(seconds)
        cpu, wall = live.cpu_s() - cpu, time.monotonic() - wall
        events = bench.broker.read(prefix)[before:]
    return cpu, wall, events


def batching(bench, seconds):
    """Frames a second of 16 cameras on a device that takes 10 ms a batch and 1 ms a frame, over the best there can be."""
    cameras = [{**pattern(i, 60, "64x48"), "detect": [{"model": "line-parts"}]} for i in range(16)]
    fake = {"run_time": "10ms", "run_time_per_frame": "1ms"}
    config, prefix = scripted(bench, cameras, fake, batching={"size_max": 16})
    _, _, events = watch(bench, programs.run_gantry(bench.tools, config), prefix, 16, seconds)
    # By the messages' own times: the broker may be late.
    made = sorted(made_at(event) for event in events)
    # The first batch is where the clock starts.
    later = sum(at > made[0] + 0.005 for at in made)
    return later / (made[-1] - made[0]) / (16 / 0.026)


def made_at(event):
    """The second in which a message was made."""
    received = datetime.datetime.fromisoformat(event["received_at"].replace("Z", "+00:00"))
    return received.timestamp() + sum(event["stage_ms"].values()) / 1e3


def overload(bench, seconds):
    """The share of 8 realtime cameras' frames that had no result in time, beside 24 best-effort cameras, all together
    three times what the device can do: 8 frames in 18 ms. A frame without a message missed its deadline."""
    rate = 42
    first = {"model": "line-parts", "quality": "realtime", "deadline": "80ms"}
    rest = {"model": "line-parts", "quality": "best_effort"}
    cameras = [{**pattern(i, rate, "64x48"), "detect": [first if i < 8 else rest]} for i in range(32)]
    fake = {"run_time": "10ms", "run_time_per_frame": "1ms"}
    config, prefix = scripted(bench, cameras, fake, batching={"size_max": 8})
    _, _, events = watch(bench, programs.run_gantry(bench.tools, config), prefix, 32, seconds)
    due = came = 0
    for index in range(8):
        ids = [event["frame"]["id"] for event in events if event["camera"] == f"c{index}" and not event.get("late")]
        due += max(ids) - min(ids) + 1
        came += len(set(ids))
    return 1 - came / due


def scaling(bench, counts, seconds):
    """Processor milliseconds a second of each number of cameras, at 10 frames a second each, on a device that costs
    nothing."""
    costs = {}
    for count in counts:
        cameras = [{**pattern(i, 10), "detect": [{"model": "line-parts"}]} for i in range(count)]
        config, prefix = scripted(bench, cameras, {}, batching={"size_max": 8})
        cpu, wall, events = watch(bench, programs.run_gantry(bench.tools, config), prefix, count, seconds)
        if len(events) < 0.95 * count * 10 * wall:
            raise Broken(f"with {count} cameras only {len(events) / wall:.0f} of {count * 10} frames a second came out")
        costs[count] = cpu / wall * 1e3
    return costs


def added_latency(bench, seconds):
    """The 99th percentile of what Gantry adds, in milliseconds, with one camera and a device that is busy half of the
    time: everything from the ready frame to its message but the pass, the model and the wait for a batch."""
    cameras = [{**pattern(0, 25, "640x480"), "detect": [{"model": "line-parts"}]}]
    config, prefix = scripted(bench, cameras, {"run_time": "20ms"}, batching={"size_max": 1})
    _, _, events = watch(bench, programs.run_gantry(bench.tools, config), prefix, 1, seconds)
    others = ("video_decode", "preprocess", "batch_wait", "infer")
    added = [sum(ms for stage, ms in event["stage_ms"].items() if stage not in others) for event in events]
    return percentile(added, 0.99), len(added)


def one_a_second(bench, keys, rounds, seconds):
    """Processor milliseconds a second of a 1080p camera over RTSP, of which one frame a second is looked at."""
    video = videos.make(bench.belt, bench.videos, "1080p", videos.RATE * videos.SECONDS)
    rig = programs.ROOT / "tests" / "rig" / "rtspcam.py"
    command = ["/usr/bin/python3", rig, "--port", free_port(), "--video", video, "--loop", "--as-is", "--path", "/cam"]
    words = ["taskset", "-c", str(bench.cores.rest), *map(str, command)]
    costs = {key: [] for key in keys}
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[1]
        scene = programs.Scene("rate", "", "1080p", 1920, 1080, programs.TINY, 1, (0, 0), rounds)
        for index in range(rounds):
            for key in keys[index % len(keys) :] + keys[: index % len(keys)]:
                target = {"port": bench.broker.port, "prefix": bench.broker.prefix(), "rate_max": 1}
                command = programs.WHOLE[key](bench.tools, scene, [url], target)
                cpu, wall, events = watch(bench, command, target["prefix"], 1, seconds, LEARN_S)
                if not 0.7 * seconds <= len(events) <= 1.3 * seconds + 1:
                    raise Broken(f"{key} published {len(events)} frames in {wall:.0f} s")
                costs[key].append(cpu / wall * 1e3)
                bench.broker.forget()
    finally:
        server.terminate()
        server.wait()
    return costs


def allocations(bench, seconds):
    """Allocations a frame of Gantry's own code on the threads that a frame goes through, as `gantry bench` counts them, and
    those inside the engine's call. At the video's own pace, so that it is not opened anew meanwhile."""
    video = videos.make(bench.belt, bench.videos, "1080p", videos.RATE * videos.SECONDS)
    command = [bench.tools.gantry, "bench", "--model", programs.TINY.name, "--models", programs.TINY.folder]
    command += ["--source", programs.address(video), "--rate", "own", "--device", "onnxruntime"]
    command += ["--seconds", seconds, "--json"]
    bench.run(command)
    said = bench.log.read_text(encoding="utf-8")
    # Log sentences may stand around it.
    start = said.find("{\n")
    if start < 0:
        raise Broken(f"gantry bench gave no JSON: {said[-200:]}")
    report = json.JSONDecoder().raw_decode(said[start:])[0]
    threads, frames = report["threads"], report["frames"]["results"]
    on_the_way = [threads[kind]["allocations_own"] for kind in ("source", "other", "device", "output") if kind in threads]
    return sum(on_the_way) / frames, threads["all"]["allocations_engine_per_frame"]
