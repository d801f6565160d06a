"""Results as a page, as a table for the README, and as a picture."""

import re
from html import escape

from contest import AGREEMENT_MIN, PRECISION_MIN, RECALL_MIN
from programs import DECODE, GANTRY, MODEL, PEER_KEYS, TITLES
from rows import rounded
from stats import COVERAGE, interval, median

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def number(value):
    """Three digits that count."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(row):
    return {True: "yes", False: "**no**", None: "–" if row.values or not row.goal else "not measured"}[row.met]


def with_spread(row):
    if not row.values:
        return "–"
    low, high = row.spread
    unit = "" if row.unit == "ratio" else f" {row.unit}"
    return f"{number(row.value)}{unit}" + (f" [{number(low)}, {number(high)}]" if len(row.values) > 1 else "")


def table(head, body):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in body])


def plain_table(measures):
    """For the terminal."""
    width = max(len(row.name) for row in measures)
    return "\n".join(
        f"{row.name:{width}}  {with_spread(row):28} {row.goal or '':8} {verdict(row).strip('*')}" for row in measures
    )


def machine_line(results):
    machine, versions = results["machine"], results["versions"]
    kind = " (virtual)" if machine["virtual"] else ""
    return (
        f"{machine['cpu']}{kind}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}; "
        f"Gantry {versions.get('gantry', '?')}, GStreamer {versions.get('gstreamer', '?')}, "
        f"ONNX Runtime {versions.get('onnxruntime (Gantry, P3)', '?')}; {results['run']['date']}"
        + ("; a quick run, for a first look" if results["run"]["quick"] else "")
    )


def readme_table(results, measures):
    """The rows with a goal."""
    body = [[row.name, with_spread(row), row.goal, verdict(row)] for row in measures if row.goal]
    return (
        "\n![Processor time a frame of every program](benches/results.svg)\n\n"
        + table(["measure", "here", "goal", "met"], body)
        + f"\n\n{machine_line(results)}. [How it was measured, and the rest](benches/RESULTS.md)\n\n"
    )


def write_into(file, text):
    """Puts text between the markers of a file."""
    old = file.read_text(encoding="utf-8")
    if BEGIN not in old:
        return
    new = re.sub(f"(?s){re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{text}{END}", old)
    file.write_text(new, encoding="utf-8")


def results_page(results, contest, measures):
    parts = [
        "# Results",
        "Written by `scripts/bench`; nothing here is written by hand. [`results.json`](results.json) has every figure.",
        f"Machine: {machine_line(results)}. Something else took {results['run']['others_share']:.0%} of it meanwhile. "
        f"The comparison took {results['run']['took_s']} s, installing and building {results['run']['built_s']} s.",
        "## Goals",
        table(
            ["measure", "here", "goal", "met", "rounds", "remark"],
            [
                [row.name, with_spread(row), row.goal or "", verdict(row), str(len(row.values)), row.note]
                for row in measures
            ],
        ),
        method(),
        "## The contest",
        "![Processor time a frame of every program](results.svg)",
        *(scene_part(contest, scene) for scene in contest.scenes),
        "## Where the time goes",
        profile_method(),
        *(profile(contest, scene) for scene in contest.scenes[:2]),
        "## Versions",
        table(["what", "version"], [[name, version] for name, version in results["versions"].items()]),
    ]
    return "\n\n".join(parts) + "\n"


def method():
    return f"""## How it is measured

Every program gets the same video, the same model file, the same release of ONNX Runtime, one thread for the model, and
one core that it is pinned to; the broker and the bookkeeping have another. Each publishes one message a frame with QoS
1, and a run counts only if every message came, the detections find {RECALL_MIN:.0%} of the parts on the belt, and
{PRECISION_MIN:.0%} of them are right (COCO model: if {AGREEMENT_MIN:.0%} of them agree with the Python script's).

The cost of a frame is the processor time, user and system, that the kernel counts for a long run less that for a short
one, over the frames between, so that starting and loading count for no program. Programs take turns, in an order that
changes with each round, and a ratio is taken within a round. A figure is the median of the rounds; in brackets is the
narrowest interval of measured values that holds the true median with {COVERAGE:.0%}, or the smallest and the largest
where there are less than six rounds."""


def scene_part(contest, scene):
    body = []
    for key, standing in contest.standings[scene.key].items():
        if standing.broken and not standing.cost_ms:
            body.append([key, TITLES[key], "–", "", "", "", standing.broken])
            continue
        if not standing.cost_ms:
            continue
        cost = list(standing.cost_ms.values())
        low, high = interval(cost)
        found = ""
        if standing.recall is not None:
            found = f"{standing.recall:.1%} found, {standing.precision:.1%} right"
        elif standing.agreement is not None:
            found = f"{standing.agreement:.1%} as P1"
        body.append(
            [
                key,
                TITLES[key],
                f"{number(median(cost))} [{number(low)}, {number(high)}]",
                number(1e3 / median(cost)),
                f"{median(standing.start_s):.2f}" if standing.start_s else "",
                number(median(standing.rss_mib)) if standing.rss_mib else "",
                standing.broken or found,
            ]
        )
    head = [
        "",
        "program",
        "ms of processor time a frame",
        "frames a core-second",
        "start, s",
        "peak memory, MiB",
        "detections",
    ]
    frames = f"{scene.frames[1] - scene.frames[0]} frames"
    if scene.cameras > 1:
        frames += f" of each of {scene.cameras} cameras"
    return f"### {sentence(scene.title)}\n\n{frames} between the short run and the long one.\n\n{table(head, body)}"


def sentence(words):
    return words[0].upper() + words[1:]


def profile_method():
    return """Milliseconds a frame. Whole is processor time. Preprocess, model and postprocess are each program's own stage
times, medians, by the clock, on a core of its own. The rest is what is left: conversion outside of those stages, hand-offs,
message, broker client; it is below nothing where a program decodes for less than A, which copies every picture once."""


def profile(contest, scene):
    """By the programs' own stage times; what decodes is the parts' own figure, the rest is what is left."""
    body = []
    decode = contest.standings[scene.key][DECODE].cost_ms
    for key in (GANTRY, *PEER_KEYS):
        standing = contest.standings[scene.key][key]
        if standing.broken or not standing.cost_ms or not decode:
            continue
        cost = median(standing.cost_ms.values())
        stages = {name: median(values) for name, values in standing.stage_ms.items()}
        known = [stages.get(name, 0.0) for name in ("preprocess", "infer", "postprocess")]
        rest = cost - median(decode.values()) - sum(known)
        body.append([key, number(cost), number(median(decode.values())), *map(number, known), number(rest)])
    head = ["", "whole", "decode (A)", "preprocess", "model", "postprocess", "the rest"]
    return f"### {scene.title}: where the time goes\n\n{table(head, body)}"


# --- the picture ---------------------------------------------------------

COLOURS = {GANTRY: "#0b7285", "P1": "#adb5bd", "P2": "#ced4da", "P3 rgb": "#868e96", "P3 planes": "#495057"}
NAMES = {
    GANTRY: "Gantry",
    "P1": "Python script",
    "P2": "Roboflow inference",
    "P3 rgb": "C++, RGB",
    "P3 planes": "C++, planes",
}
LEFT, WIDE, BAR, GAP = 150, 560, 15, 34


def picture(contest):
    """Bars of processor time a frame; a line in each group where decoder and model alone are."""
    parts, y = [], 34
    for scene in contest.scenes:
        standings = contest.standings[scene.key]
        bars = [(key, median(standings[key].cost_ms.values())) for key in COLOURS if standings[key].cost_ms]
        if not bars:
            continue
        longest = max(cost for _, cost in bars)
        parts.append(text(0, y, scene.title, "title"))
        top = y + 8
        for index, (key, cost) in enumerate(bars):
            line = top + index * (BAR + 3)
            width = cost / longest * WIDE
            parts.append(text(LEFT - 6, line + BAR - 4, NAMES[key], "name"))
            parts.append(f'<rect x="{LEFT}" y="{line}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[key]}"/>')
            parts.append(text(LEFT + width + 5, line + BAR - 4, f"{rounded(cost):.3g} ms", "figure"))
        floor = [standings[key].cost_ms for key in (DECODE, MODEL)]
        bottom = top + len(bars) * (BAR + 3)
        if all(floor):
            at = LEFT + sum(median(cost.values()) for cost in floor) / longest * WIDE
            parts.append(f'<line x1="{at:.1f}" y1="{top - 3}" x2="{at:.1f}" y2="{bottom}"/>')
        y = bottom + GAP
    style = (
        "text{font:12px sans-serif;fill:#343a40}.title{font-weight:bold}.name{text-anchor:end}"
        "line{stroke:#e03131;stroke-dasharray:3 2}"
        "@media(prefers-color-scheme:dark){text{fill:#dee2e6}}"
    )
    caption = "Processor time a frame, one core; the dashed line is decoder and model alone. Shorter is better."
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + 70}" height="{y}" role="img">'
    return "\n".join([head, f"<style>{style}</style>", text(0, 14, caption, "caption"), *parts, "</svg>", ""])


def text(x, y, words, kind):
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(words)}</text>'
