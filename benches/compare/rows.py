"""What is reported: each row with its goal. Figures come from what was measured in this run and from nowhere else."""

import operator
from dataclasses import dataclass

from programs import DECODE, GANTRY, KERNEL, MODEL, PEER_KEYS, TITLES
from stats import interval, median, paired

COMPARE = {"≤": operator.le, "≥": operator.ge, "<": operator.lt}


@dataclass
class Row:
    """One measure. `values` are those of the rounds; `note` says what a reader must know to judge it."""

    name: str
    values: list
    unit: str
    goal: str | None = None
    note: str = ""
    # Whether the whole interval must keep the goal, or the median.
    whole_interval: bool = False

    @property
    def value(self):
        return median(self.values) if self.values else None

    @property
    def spread(self):
        return list(interval(self.values)) if self.values else None

    @property
    def met(self):
        """None where there is no goal, or no figure to hold against it."""
        if not self.goal or not self.values:
            return None
        sign, limit = self.goal.split()[:2]
        judged = self.value
        if self.whole_interval:
            judged = self.spread[1] if sign in "≤<" else self.spread[0]
        return COMPARE[sign](judged, float(limit))

    def json(self):
        row = {"name": self.name, "value": rounded(self.value), "unit": self.unit, "goal": self.goal, "met": self.met}
        row |= {"runs": len(self.values), "spread": self.spread and [rounded(end) for end in self.spread]}
        if self.note:
            row["note"] = self.note
        return row


def rounded(value):
    return None if value is None else float(f"{value:.4g}")


def contest_rows(contest):
    """The costs of every program in every scene."""
    rows = []
    for scene in contest.scenes:
        for key, standing in contest.standings[scene.key].items():
            name = f"{scene.key}: {key}, processor time a frame"
            rows.append(Row(name, list(standing.cost_ms.values()), "ms", note=standing.broken or TITLES[key]))
    return rows


def goal_rows(contest, scenes):
    """The rows of the table of goals that the contest gives."""
    return [
        parts_row(contest, scenes["1080p"]),
        own_cost_row(contest, scenes["1080p"]),
        *(per_core_row(contest, scenes[key], goal) for key, goal in (("1080p", "≥ 1.4"), ("480p", "≥ 1.2"))),
        *(per_core_row(contest, scenes[key], None) for key in ("1080p coco", "8 × 480p")),
        *(
            row
            for key in PEER_KEYS
            for row in [against_row(contest, scenes["1080p"], key)]
            if key != contest.best_peer(scenes["1080p"])
        ),
    ]


def copies_row(contest, scene):
    standing = contest.standings[scene.key][GANTRY]
    note = standing.broken or ("" if standing.copies else "this build does not count them")
    return Row("copies a frame, H.264 of libav, 1080p", standing.copies, "copies", "≤ 0", note)


def parts_row(contest, scene):
    whole, decode, model, kernel = contest.costs(scene, GANTRY, DECODE, MODEL, KERNEL)
    parts = [sum(three) for three in zip(decode, model, kernel)]
    name = "processor time a frame, 1080p, tiny model: Gantry whole ÷ (decode + model + preprocess alone)"
    return Row(name, paired(whole, parts), "ratio", "≤ 1.00", whole_interval=True)


def own_cost_row(contest, scene):
    """What is left of a whole when the decoder and the model are taken off."""
    name, peer = "own cost a frame, 1080p, tiny model: Gantry ÷ best peer", contest.best_peer(scene)
    if not peer:
        return Row(name, [], "ratio", "≤ 0.2", "no peer could be measured")
    whole, decode, model, other = contest.costs(scene, GANTRY, DECODE, MODEL, peer)
    ours = [a - b - c for a, b, c in zip(whole, decode, model)]
    theirs = [a - b - c for a, b, c in zip(other, decode, model)]
    if not ours or median(theirs) <= 0:
        return Row(
            name, [], "ratio", "≤ 0.2", f"{peer} costs no more than decoder and model alone: no ratio can be given"
        )
    # Ratios of medians: a single round's difference can be near nothing, and its ratio anything.
    note = f"best peer: {peer}; own cost of Gantry {median(ours):.2f} ms, of {peer} {median(theirs):.2f} ms"
    return Row(name, [value / median(theirs) for value in ours], "ratio", "≤ 0.2", note)


def per_core_row(contest, scene, goal):
    name, peer = f"frames a core, {scene.title}: Gantry ÷ best peer", contest.best_peer(scene)
    if not peer:
        return Row(name, [], "ratio", goal, "no peer could be measured")
    ours, theirs, decode, model = contest.costs(scene, GANTRY, peer, DECODE, MODEL)
    note = f"best peer: {peer}"
    if theirs:
        ceiling = median(paired(theirs, [a + b for a, b in zip(decode, model)]))
        note += f"; decoder and model alone would be {ceiling:.2f} times as fast as that peer"
    return Row(name, paired(theirs, ours), "ratio", goal, note)


def against_row(contest, scene, peer):
    ours, theirs = contest.costs(scene, GANTRY, peer)
    note = contest.standings[scene.key][peer].broken or TITLES[peer]
    return Row(f"frames a core, {scene.title}: Gantry ÷ {peer}", paired(theirs, ours), "ratio", None, note)
