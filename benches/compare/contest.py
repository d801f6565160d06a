"""The contest: every program over every scene, in turn, round by round.

The cost of a frame is the processor time of a long run less that of a short one, over the frames between: start and
load do not count, for no program. A run counts only if all its messages came and say what is to be seen.
"""

import statistics
from dataclasses import dataclass, field

import programs
import videos
from measure import Broken
from programs import DECODE, GANTRY, KERNEL, MODEL, PEER_KEYS, PIPELINE, TITLES, USUAL
from stats import marginal
from truth import Truth, agreement

# A program must find so much of what there is, and so much of what it says must be there.
RECALL_MIN, PRECISION_MIN, AGREEMENT_MIN = 0.75, 0.85, 0.75
# Whoever starts so slowly is measured in half of the rounds, over more frames, among which its start is lost.
PIPELINE_LONGER = 3
# Runs of a part by itself take so many seconds, more or less.
PART_S = 0.8


@dataclass
class Standing:
    """One program in one scene: processor milliseconds a frame in each round, and what else was seen."""

    cost_ms: dict = field(default_factory=dict)
    wall_ms: dict = field(default_factory=dict)
    start_s: list = field(default_factory=list)
    rss_mib: list = field(default_factory=list)
    recall: float | None = None
    precision: float | None = None
    agreement: float | None = None
    stage_ms: dict = field(default_factory=dict)
    copies: list = field(default_factory=list)
    broken: str | None = None


def lengths(scene, key):
    """Frames of the short run and of the long one."""
    few, many = scene.frames
    return few, few + (PIPELINE_LONGER if key == PIPELINE else 1) * (many - few)


def copied(health):
    """How often a picture was copied on its way to us, as the last health message of a run says; None where it does not."""
    if not health or any("pool" not in camera for camera in health[-1]["cameras"]):
        return None
    return sum(sum(camera["pool"]["copied"].values()) for camera in health[-1]["cameras"])


class Contest:
    """Runs it and keeps what was measured: `standings[scene.key][program]`."""

    def __init__(self, bench, scenes, missing):
        self.bench, self.scenes, self.reference = bench, scenes, []
        self.standings = {scene.key: {} for scene in scenes}
        for scene in scenes:
            for key in (DECODE, MODEL, KERNEL, GANTRY, *PEER_KEYS):
                self.standings[scene.key][key] = Standing(broken=missing.get(key))

    def round(self, scene, index):
        """Every program once, in an order that differs from round to round."""
        keys = list(self.standings[scene.key])
        # The first round begins with the peer whose detections the others' are held against.
        turn = (keys.index(USUAL) + 3 * index) % len(keys)
        for key in keys[turn:] + keys[:turn]:
            standing = self.standings[scene.key][key]
            if standing.broken or (key == PIPELINE and index >= scene.rounds / 2):
                continue
            try:
                if key in (MODEL, KERNEL):
                    self.part(scene, key, standing, index)
                else:
                    self.whole(scene, key, standing, index)
            except Broken as reason:
                standing.broken = str(reason)
                self.bench.say(f"{key} is out of {scene.key}: {reason}")

    def part(self, scene, key, standing, index):
        """The model or the pass by itself; how often, the first run tells."""
        command = programs.model_alone if key == MODEL else programs.kernel_alone

        def cpu(runs):
            return self.bench.run(command(self.bench.tools, scene, runs)).cpu_s

        few = 20
        guess = max(marginal(cpu(few), cpu(3 * few), 2 * few), 2e-5)
        many = few + max(int(PART_S * self.bench.effort / guess), few)
        standing.cost_ms[index] = marginal(cpu(few), cpu(many), many - few) * 1e3

    def whole(self, scene, key, standing, index):
        """A short run and a long one, checked."""
        used, copies = {}, {}
        few, many = lengths(scene, key)
        # The longer one is not always the later one.
        for frames in (few, many) if index % 2 == 0 else (many, few):
            clips = [videos.make(self.bench.belt, self.bench.videos, scene.video, frames)] * scene.cameras
            if key == DECODE:
                used[frames] = self.bench.run(programs.decode_alone(self.bench.tools, scene, clips, None))
                continue
            target = {"port": self.bench.broker.port, "prefix": self.bench.broker.prefix()}
            used[frames] = self.bench.run(programs.WHOLE[key](self.bench.tools, scene, clips, target))
            events = self.bench.broker.events(target["prefix"], frames * scene.cameras)
            self.check(scene, key, standing, frames, events)
            if key == GANTRY:
                copies[frames] = copied(self.bench.broker.read(target["prefix"], "/health "))
        short, long, more = used[few], used[many], (many - few) * scene.cameras
        standing.cost_ms[index] = marginal(short.cpu_s, long.cpu_s, more) * 1e3
        standing.wall_ms[index] = marginal(short.wall_s, long.wall_s, more) * 1e3
        standing.start_s.append(short.cpu_s - standing.cost_ms[index] / 1e3 * few * scene.cameras)
        standing.rss_mib.append(long.rss_mib)
        if None not in copies.values() and copies:
            standing.copies.append(marginal(copies[few], copies[many], more))

    def check(self, scene, key, standing, frames, events):
        """Every frame of every camera has its message, and the messages tell the truth."""
        got = sorted((event["camera"], event["frame"]["id"]) for event in events)
        first = min((number for _, number in got), default=1)
        due = sorted((f"c{camera}", first + n) for camera in range(scene.cameras) for n in range(frames))
        if got != due:
            raise Broken(f"{len(due)} messages were due, {len(set(got) & set(due))} came")
        if scene.model is programs.TINY:
            kind = videos.KINDS[scene.video]
            truth = Truth(self.bench.truth, kind.top, kind.height, kind.scale)
            standing.recall, standing.precision = truth.score(events)
            if standing.recall < RECALL_MIN or standing.precision < PRECISION_MIN:
                raise Broken(
                    f"it finds {standing.recall:.0%} of the parts, and {standing.precision:.0%} of its finds are right"
                )
        elif key == USUAL:
            self.reference = events
        elif self.reference:
            standing.agreement = agreement(events, self.reference)
            if standing.agreement < AGREEMENT_MIN:
                raise Broken(f"it agrees with the Python script in {standing.agreement:.0%} of all finds")
        steady = events[len(events) // 5 :]
        for stage in steady[0]["stage_ms"]:
            standing.stage_ms.setdefault(stage, []).append(statistics.median(e["stage_ms"][stage] for e in steady))

    def costs(self, scene, *keys):
        """Milliseconds a frame of these programs, of the rounds that all of them have; none where one is out."""
        standings = [self.standings[scene.key][key] for key in keys]
        if any(standing.broken for standing in standings):
            return [[] for _ in keys]
        rounds = sorted(set.intersection(*(set(standing.cost_ms) for standing in standings)))
        return [[standing.cost_ms[index] for index in rounds] for standing in standings]

    def best_peer(self, scene):
        """The peer with the lowest median cost a frame."""
        fit = {}
        for key in PEER_KEYS:
            standing = self.standings[scene.key][key]
            if not standing.broken and standing.cost_ms:
                fit[key] = statistics.median(standing.cost_ms.values())
        return min(fit, key=fit.get) if fit else None

    def title(self, key):
        return TITLES[key]
