"""The comparison that `scripts/bench` starts once everything is installed and built."""

import argparse
import json
import sys
import time
from pathlib import Path

import machine
import report
import rows
import trials
import videos
from contest import Contest, lengths
from measure import Broken, Broker, Cores, run
from programs import GANTRY, PIPELINE, PLANES, REAL, RGB, ROOT, TINY, USUAL, Scene, Tools
from stats import median

BENCHES = ROOT / "benches"


def scenes(quick):
    """Enough frames that a difference stands out of the noise, in as little time as that takes."""
    sizes = [((50, 150), 2), ((50, 250), 2), ((25, 75), 1), ((25, 50), 1)] if quick else []
    sizes = sizes or [((75, 375), 6), ((100, 600), 6), ((25, 150), 6), ((25, 100), 6)]
    kinds = [
        ("1080p", "1080p, tiny model", "1080p", 1920, 1080, TINY, 1),
        ("480p", "640x480, tiny model", "480p", 640, 480, TINY, 1),
        ("1080p coco", "1080p, COCO model", "1080p", 1920, 1080, REAL, 1),
        ("8 × 480p", "8 cameras of 640x480, tiny model", "480p", 640, 480, TINY, 8),
    ]
    return [Scene(*kind, *size) for kind, size in zip(kinds, sizes)]


class Bench:
    """What every part of the comparison uses: tools, cores, broker, and how long things may take."""

    def __init__(self, options):
        self.quick = options.quick
        self.effort = 0.25 if options.quick else 1.0
        self.work = Path(options.work).resolve()
        self.videos = self.work / "videos"
        self.videos.mkdir(parents=True, exist_ok=True)
        self.log = self.work / "program.log"
        self.belt, self.truth = (ROOT / "tests" / "data" / name for name in ("belt.mp4", "belt.gt.jsonl"))
        self.tools = Tools(
            gantry=Path(options.gantry).resolve(),
            kernel=Path(options.kernel).resolve(),
            peers=self.work / "peers",
            usual=self.work / "usual",
            pipeline=self.work / "pipeline",
            runtime=Path(options.runtime),
            work=self.work,
        )
        self.cores = Cores()
        self.broker = Broker(self.work, self.cores.rest)
        self.begin = time.monotonic()

    def prepare(self, contest):
        """Makes the videos, which is no part of the comparison."""
        self.say("making the videos")
        for scene in contest.scenes:
            for frames in {*lengths(scene, GANTRY), *lengths(scene, PIPELINE)}:
                videos.make(self.belt, self.videos, scene.video, frames)
        took, self.begin = time.monotonic() - self.begin, time.monotonic()
        return took

    def run(self, command, env=None):
        return run(command, self.cores.program, self.log, env)

    def say(self, text):
        print(f"bench: {time.monotonic() - self.begin:5.0f} s  {text}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--work", required=True)
    parser.add_argument("--gantry", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--missing", action="append", default=[], help="PEER=why it could not be installed")
    parser.add_argument("--built-s", type=int, default=0, help="what installing and building took")
    parser.add_argument("--into", default=str(BENCHES), help="where results go")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        contest = Contest(bench, scenes(options.quick), dict(one.split("=", 1) for one in options.missing))
        built = options.built_s + bench.prepare(contest)
        state = machine.Load()
        compete(bench, contest)
        measures = goals(bench, contest)
        took = time.monotonic() - bench.begin
        results = {
            "measures": [row.json() for row in [*measures, *rows.contest_rows(contest)]],
            "machine": machine.describe(),
            "versions": machine.versions(bench.tools),
            "run": {
                "quick": options.quick,
                "took_s": round(took),
                "built_s": round(built),
                "others_share": round(state.others_share(), 3),
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
            },
        }
    finally:
        bench.broker.close()
    into = Path(options.into)
    (into / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (into / "RESULTS.md").write_text(report.results_page(results, contest, measures), encoding="utf-8")
    (into / "results.svg").write_text(report.picture(contest), encoding="utf-8")
    if into == BENCHES:
        report.write_into(ROOT / "README.md", report.readme_table(results, measures))
    print(report.plain_table(measures))
    bench.say("done")


def compete(bench, contest):
    """Round by round over all scenes, so that a slow minute of the machine falls on all of them."""
    for index in range(max(scene.rounds for scene in contest.scenes)):
        for scene in contest.scenes:
            if index < scene.rounds:
                bench.say(f"round {index + 1} of {scene.rounds}: {scene.title}")
                contest.round(scene, index)
                bench.broker.forget()


def goals(bench, contest):
    """Every row of the table of goals, in its order; a trial that cannot be had says why."""
    by_key = {scene.key: scene for scene in contest.scenes}
    times = 1 if bench.quick else 3
    seconds = 4 if bench.quick else 6
    measures = rows.goal_rows(contest, by_key)

    def add(title, name, unit, goal, values, note=""):
        """Measures with `values`, which may fail."""
        bench.say(title)
        try:
            found = values()
        except Broken as reason:
            found, note = [], str(reason)
        measures.append(rows.Row(name, found, unit, goal, note))
        bench.broker.forget()

    measures.append(one_a_second(bench, times, seconds))
    measures.append(preprocess(bench))
    add(
        "added latency",
        "added latency p99, one camera, device busy half of the time",
        "ms",
        "< 1",
        lambda: [trials.added_latency(bench, 2 * seconds)[0] for _ in range(times)],
        "queue and everything after the model, by the messages' own stage times",
    )
    measures.append(allocations(bench, times, seconds))
    measures.append(rows.copies_row(contest, by_key["1080p"]))
    add(
        "batching",
        "frames a second of 16 cameras, device of 10 ms + 1 ms a frame: of the optimum",
        "ratio",
        "≥ 0.95",
        lambda: [trials.batching(bench, seconds) for _ in range(times)],
        "the optimum is 16 frames in each 26 ms",
    )
    add(
        "overload",
        "8 realtime beside 24 best-effort cameras, 3 times what the device can do: realtime frames without a result in time",
        "share",
        "< 0.001",
        lambda: [trials.overload(bench, seconds) for _ in range(times)],
        "device of 10 ms + 1 ms a frame, deadline 80 ms",
    )
    add(
        "a camera's cost from 1 to 64",
        "cost a camera, 64 cameras ÷ 1 camera",
        "ratio",
        "≤ 1.05",
        lambda: [
            costs[64] / 64 / costs[1] for costs in (trials.scaling(bench, (1, 64), seconds) for _ in range(times))
        ],
        "320x240 at 10 frames a second each, device that costs nothing",
    )
    return measures


def one_a_second(bench, times, seconds):
    """Cameras a core where one frame a second is wanted."""
    name = "cameras a core, 1080p at 25 frames a second, `rate_max: 1`: Gantry ÷ best peer"
    bench.say("one frame a second")
    try:
        costs = trials.one_a_second(bench, (GANTRY, USUAL, RGB, PLANES), times, seconds)
    except Broken as reason:
        return rows.Row(name, [], "ratio", "≥ 5", str(reason))
    medians = {key: median(values) for key, values in costs.items()}
    peer = min((key for key in medians if key != GANTRY), key=medians.get)
    note = f"best peer: {peer}; " + ", ".join(f"{key} {value:.1f} ms a second" for key, value in medians.items())
    return rows.Row(name, rows.paired(costs[peer], costs[GANTRY]), "ratio", "≥ 5", note)


def allocations(bench, times, seconds):
    """By Gantry's own count."""
    bench.say("allocations")
    name = "allocations a frame of our own code, 1080p"
    try:
        own, engine = zip(*(trials.allocations(bench, seconds) for _ in range(times)))
    except Broken as reason:
        return rows.Row(name, [], "allocations", "≤ 0", str(reason))
    return rows.Row(name, list(own), "allocations", "≤ 0", f"inside the engine's call {median(engine):.3g} a frame")


def preprocess(bench):
    """Our pass against OpenCV's calls."""
    bench.say("preprocess against OpenCV")
    name = "preprocess 1080p NV12 → 640 f32: OpenCV's four calls ÷ Gantry's pass"
    few, many = 20, 20 + int(400 * bench.effort)
    values = []
    try:
        for _ in range(3 if bench.quick else 7):
            kernel = [bench.run([bench.tools.kernel, "nv12", 1920, 1080, 640, n]).cpu_s for n in (few, many)]
            opencv = [bench.run([bench.tools.peers / "alone", "opencv", 640, n]).cpu_s for n in (few, many)]
            values.append((opencv[1] - opencv[0]) / (kernel[1] - kernel[0]))
    except Broken as reason:
        return rows.Row(name, [], "ratio", "≥ 3", str(reason))
    return rows.Row(
        name, values, "ratio", "≥ 3", "cvtColorTwoPlane, resize, convertTo, split; memory used again, one thread"
    )


if __name__ == "__main__":
    main()
