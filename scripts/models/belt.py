#!/usr/bin/env python3
"""Makes scenes of a conveyor belt: labelled images to train with, videos and their ground truth.

A scene is one long strip of dark rubber with metal parts painted on it. A
frame is a window that slides along the strip, blurred by the motion, lit by a
fixed lamp and seen past fixed rails and a cable. Everything follows the seed.

  belt.py --train DIR --count 3000 --seed 1    images/*.jpg, labels/*.txt (YOLO)
  belt.py --video tests/data/belt.mp4 --frames 250        H.264, and belt.gt.jsonl
  belt.py --video tests/data/belt_mjpg.avi --frames 75    Motion JPEG, and its .gt.jsonl
"""
import argparse
import json
import subprocess
from multiprocessing import Pool
from pathlib import Path

import cv2
import numpy as np

CLASSES = ["nut", "washer", "bolt", "defect"]
SIZES = [(640, 480), (640, 480), (640, 360), (480, 480), (800, 600)]
SS = 4  # supersampling of a part's drawing
MIN_VISIBLE = 0.5  # a part less visible than this at the frame's edge is not labelled
cv2.setNumThreads(1)


def noise(rng, h, w, cell, octaves=3):
    """Smooth value noise, about -1..1, with features of `cell` pixels and finer."""
    out = np.zeros((h, w), np.float32)
    for o in range(octaves):
        c = max(1, cell >> o)
        grid = rng.normal(0, 0.5, (h // c + 2, w // c + 2)).astype(np.float32)
        out += cv2.resize(grid, (w, h), interpolation=cv2.INTER_CUBIC) / (1 << o)
    return out


def polar(n, r, phase=0.0):
    a = phase + np.arange(n) * 2 * np.pi / n
    return np.stack([np.cos(a), np.sin(a)], 1) * r


def fill(mask, points, value):
    c = mask.shape[0] / 2
    cv2.fillPoly(mask, [np.round(np.asarray(points) + c).astype(np.int32)], value)


def jagged(rng, a, b, jitter, n=6):
    """A zigzag line from a to b."""
    p = np.linspace(a, b, n + 1)
    p[1:-1] += rng.normal(0, jitter, (n - 1, 2))
    return p


def draw_part(rng, cls, r):
    """Mask, height map and damage map (all SS times too large) of a part of radius r."""
    n, u = int(r * 4.2 * SS) // 2 * 2, r * SS
    mask, damage = np.zeros((n, n), np.uint8), np.zeros((n, n), np.float32)
    if cls == "bolt":
        half, shaft, head = 1.75 * u, 0.36 * u, 0.78 * u
        yy, xx = np.mgrid[:n, :n].astype(np.float32) - n / 2
        fill(mask, [(-half, -head), (-half + 0.7 * u, -head), (-half + 0.7 * u, head), (-half, head)], 255)
        fill(mask, [(-half, -shaft), (half - 0.1 * u, -shaft), (half, -0.7 * shaft),
                    (half, 0.7 * shaft), (half - 0.1 * u, shaft), (-half, shaft)], 255)
        on_head = xx < -half + 0.7 * u
        round_ = np.sqrt(np.clip(1 - (yy / shaft) ** 2, 0, 1)) * shaft
        thread = 0.09 * u * np.sin(xx * 2 * np.pi / (0.24 * u)) * (xx > -0.35 * u)
        facet = np.clip(1.5 * head - np.abs(yy) * np.where(np.abs(yy) > head / 2, 1.4, 0.15), 0, None) * 0.6
        height = np.where(on_head, facet, round_ + thread).astype(np.float32)
        return mask, height, damage
    shape = cls if cls != "defect" else rng.choice(["nut", "washer"])
    outer = polar(6, u) if shape == "nut" else polar(64, u)
    hole = u * (rng.uniform(0.44, 0.5) if shape == "nut" else rng.uniform(0.46, 0.56))
    fill(mask, outer, 255)
    fill(mask, polar(48, hole), 0)
    if cls == "defect":
        a, width = rng.uniform(0, 2 * np.pi), rng.uniform(0.75, 1.2)
        ray = lambda t, k: np.array([np.cos(t), np.sin(t)]) * u * k
        chip = np.concatenate([jagged(rng, ray(a, 0.3), ray(a - width / 2, 1.3), 0.05 * u),
                               jagged(rng, ray(a + width / 2, 1.3), ray(a, 0.3), 0.05 * u)])
        fill(mask, chip, 0)
        b = a + np.pi + rng.uniform(-0.7, 0.7)
        crack = jagged(rng, ray(b, 0.35), ray(b + rng.uniform(-0.3, 0.3), 1.1), 0.06 * u)
        line = np.round(crack + n / 2).astype(np.int32)
        cv2.polylines(mask, [line], False, 0, max(2, int(0.1 * u)))
        cv2.polylines(damage, [line], False, 1.0, int(0.5 * u))
        cv2.polylines(damage, [np.round(chip + n / 2).astype(np.int32)], True, 1.0, int(0.4 * u))
        damage = cv2.GaussianBlur(damage, (0, 0), 0.15 * u)
    bevel = (0.2 if shape == "nut" else 0.09) * u
    d = cv2.distanceTransform(mask, cv2.DIST_L2, 5)
    height = np.sqrt(np.clip(1 - (1 - np.minimum(d, bevel) / bevel) ** 2, 0, 1)) * bevel
    return mask, height.astype(np.float32), damage


def sprite(rng, cls, r):
    """Colour (h, w, 3) and alpha (h, w) of one turned, shaded part."""
    mask, height, damage = draw_part(rng, cls, r)
    n, m = mask.shape[0], mask.shape[0] * 2 // SS
    turn = cv2.getRotationMatrix2D((n / 2, n / 2), rng.uniform(0, 360), 2 / SS)
    turn[:, 2] += m / 2 - n / 2
    warp = lambda a: cv2.warpAffine(cv2.GaussianBlur(a, (0, 0), 1.2), turn, (m, m))
    alpha, height, damage = warp(mask.astype(np.float32) / 255), warp(height), warp(damage)
    gx, gy = cv2.Sobel(height, -1, 1, 0, scale=0.25), cv2.Sobel(height, -1, 0, 1, scale=0.25)
    nz = 1 / np.sqrt(1 + gx * gx + gy * gy)
    lamp = np.array([-0.45, -0.6, 0.66])
    diffuse = np.clip((-gx * lamp[0] - gy * lamp[1] + lamp[2]) * nz, 0, 1)
    base = np.array([[150, 152, 155], [120, 150, 165], [168, 164, 158], [110, 112, 116]][rng.integers(4)])
    base = base * rng.uniform(0.85, 1.15)
    grain = 1 + 0.06 * noise(rng, m, m, 6)
    colour = (base * ((0.35 + 0.85 * diffuse) * grain)[..., None] + 90 * (diffuse ** 12)[..., None])
    rust = np.array([40, 70, 120]) * (0.75 + 0.35 * noise(rng, m, m, 8))[..., None]
    k = np.clip(damage * rng.uniform(0.45, 0.8), 0, 1)[..., None]
    colour = colour * (1 - k) + rust * k
    half = lambda a: cv2.resize(a.astype(np.float32), (m // 2, m // 2), interpolation=cv2.INTER_AREA)
    return half(colour), half(alpha)


class Scene:
    """A strip with parts, and the frames that a fixed camera sees of it."""

    def __init__(self, seed, size=(640, 480), frames=1, classes=CLASSES):
        self.seed = np.atleast_1d(seed).tolist()
        self.rng = rng = np.random.default_rng(self.seed)
        self.w, self.h = size
        self.speed = rng.uniform(4.5, 5.5)  # pixels a frame, to the right
        self.frames = frames
        self.length = self.w + int(np.ceil(self.speed * frames)) + 2
        self.rail = int(self.h * rng.uniform(0.07, 0.1))
        self._paint_belt()
        self._place_parts(list(classes))
        self._paint_foreground()

    def _paint_belt(self):
        rng, h, n = self.rng, self.h, self.length
        v = 46 + 4 * noise(rng, h, n, 64) + 3.5 * noise(rng, h, n, 4, 2)
        rib = rng.integers(26, 60)
        v += 3 * np.cos(np.arange(n) * 2 * np.pi / rib)[None] ** 9
        for _ in range(n // 90):  # scratches along the belt, dust
            x, y = int(rng.integers(n)), int(rng.integers(h))
            end = (x + int(rng.integers(20, 160)), y + int(rng.integers(-4, 5)))
            cv2.line(v, (x, y), end, float(rng.uniform(34, 66)), 1, cv2.LINE_AA)
            cv2.circle(v, (int(rng.integers(n)), int(rng.integers(h))), int(rng.integers(1, 3)),
                       float(rng.uniform(60, 110)), -1, cv2.LINE_AA)
        tint = np.array([1.0, 0.98, 0.95]) * rng.uniform(0.8, 1.2)
        self.strip = (np.clip(v, 8, 255)[..., None] * tint).astype(np.float32)

    def _place_parts(self, classes):
        rng, unit = self.rng, self.h / 480
        self.parts, placed, bag = [], [], []
        wanted = max(1, int(self.length / self.w * rng.uniform(5, 8)))
        for _ in range(wanted * 12):
            if len(placed) == wanted:
                break
            bag = bag or list(rng.permutation(classes))
            cls, r = bag[-1], rng.uniform(26, 42) * unit
            if cls == "bolt":
                r *= 0.85
            reach = r * (1.5 if cls == "bolt" else 1.0)
            x = rng.uniform(reach, self.length - reach)
            y = rng.uniform(self.rail + reach, self.h - self.rail - reach)
            near = 0.8 if rng.random() < 0.12 else 1.1  # now and then one part covers another's rim
            if all(np.hypot(x - a, y - b) > near * (reach + c) for a, b, c in placed):
                placed.append((x, y, reach))
                self._paint_part(bag.pop(), r, x, y)
        self.parts.sort(key=lambda p: -p["x"])  # ids in order of entry
        for i, p in enumerate(self.parts):
            p["id"] = i + 1

    def _paint_part(self, cls, r, x, y):
        colour, alpha = sprite(self.rng, cls, r)
        n = alpha.shape[0]
        x0, y0 = int(x) - n // 2, int(y) - n // 2
        shade = cv2.GaussianBlur(alpha, (0, 0), r * 0.09)
        drop = max(1, int(r * 0.14))
        for layer, dx, dy, paint in ((shade, drop, drop, None), (alpha, 0, 0, colour)):
            sx, sy = max(0, -x0 - dx), max(0, -y0 - dy)
            ex, ey = min(n, self.length - x0 - dx), min(n, self.h - y0 - dy)
            view = self.strip[y0 + dy + sy:y0 + dy + ey, x0 + dx + sx:x0 + dx + ex]
            a = layer[sy:ey, sx:ex, None]
            view[:] = view * (1 - 0.6 * a) if paint is None else view * (1 - a) + paint[sy:ey, sx:ex] * a
        self.parts.append({"label": str(cls), "x": x0, "y": y0, "mask": alpha > 0.5})

    def _paint_foreground(self):
        rng, w, h = self.rng, self.w, self.h
        fg, a = np.zeros((h, w, 3), np.float32), np.zeros((h, w), np.float32)
        for y0, y1 in ((0, self.rail), (h - self.rail, h)):  # brushed rails with screws
            t = np.linspace(-1, 1, y1 - y0)[:, None]
            metal = 118 - 45 * t ** 2 + 5 * cv2.blur(noise(rng, y1 - y0, w, 2, 1), (31, 1))
            fg[y0:y1], a[y0:y1] = metal[..., None] * np.array([1.02, 1.0, 0.96]), 1
            for x in range(int(rng.integers(60)), w, 150):
                cv2.circle(fg, (x, (y0 + y1) // 2), self.rail // 5, (62, 62, 64), -1, cv2.LINE_AA)
        if rng.random() < 0.5:  # a cable hangs across the view
            x = rng.uniform(0.15, 0.85) * w
            t = np.linspace(0, 1, 40)
            px = x + rng.uniform(-0.12, 0.12) * w * t + 18 * np.sin(t * np.pi * rng.uniform(0.7, 2))
            line = [np.stack([px, t * h], 1).astype(np.int32)]
            thick, hue = max(3, int(h * rng.uniform(0.008, 0.016))), rng.uniform(0.6, 1.2)
            cv2.polylines(a, line, False, 1.0, thick, cv2.LINE_AA)
            cv2.polylines(fg, line, False, tuple(np.array([34, 60, 88]) * hue), thick + 2, cv2.LINE_AA)
            cv2.polylines(fg, line, False, tuple(np.array([60, 100, 140]) * hue), thick // 3, cv2.LINE_AA)
        yy, xx = np.mgrid[:h, :w].astype(np.float32)
        gx, gy = rng.uniform(-0.35, 0.35, 2)
        light = 1 + gx * (xx / w - 0.5) + gy * (yy / h - 0.5)
        cx, cy = rng.uniform(0.2, 0.8, 2)
        light += rng.uniform(0.1, 0.35) * np.exp(-((xx / w - cx) ** 2 + (yy / h - cy) ** 2) / 0.12)
        edge = 1 - 0.35 * np.exp(-((yy - self.rail) / (0.03 * h)) ** 2)  # the upper rail's shadow
        warm = np.array([1, 1, 1]) + rng.uniform(-0.05, 0.05) * np.array([1, 0, -1])
        self.light = (light * edge * rng.uniform(0.8, 1.2))[..., None] * warm
        self.fg, self.fg_alpha = fg, a[..., None]
        self.sigma = rng.uniform(1.0, 2.5)

    def frame(self, i):
        """BGR image of frame i and its labelled objects, boxes in pixels."""
        rng = np.random.default_rng([*self.seed, i, 1])  # this frame's own noise
        x0 = self.length - self.w - 1 - self.speed * i
        centre = (x0 + (self.w - 1) / 2, (self.h - 1) / 2)
        img = cv2.getRectSubPix(self.strip, (self.w, self.h), centre)
        img = cv2.blur(img, (3, 1))  # exposure of about half a frame interval
        img = img * (1 - self.fg_alpha) + self.fg * self.fg_alpha
        img = img * self.light * (1 + rng.normal(0, 0.004))
        img += rng.normal(0, self.sigma, img.shape)
        img = cv2.GaussianBlur(np.clip(img, 0, 255), (0, 0), 0.6).astype(np.uint8)
        objects = []
        for p in self.parts:
            left = p["x"] - x0
            n = p["mask"].shape[0]
            c0, c1 = int(max(0, np.ceil(-left))), int(min(n, np.floor(self.w - left)))
            if c1 <= c0:
                continue
            seen = p["mask"][:, c0:c1]
            if seen.sum() < MIN_VISIBLE * p["mask"].sum():
                continue
            cols, rows = np.flatnonzero(seen.any(0)), np.flatnonzero(seen.any(1))
            box = {"x": left + c0 + cols[0], "y": p["y"] + rows[0],
                   "w": cols[-1] - cols[0] + 1, "h": rows[-1] - rows[0] + 1}
            box = {k: round(float(v), 1) for k, v in box.items()}
            objects.append({"label": p["label"], "box": box, "id": p["id"]})
        return img, objects


def write_sample(out, seed, i):
    w, h = size = SIZES[i % len(SIZES)]
    img, objects = Scene([seed, i], size).frame(0)
    cv2.imwrite(str(out / f"images/{i:05d}.jpg"), img, [cv2.IMWRITE_JPEG_QUALITY, 90])
    with open(out / f"labels/{i:05d}.txt", "w") as f:
        for o in objects:
            x, y, bw, bh = (o["box"][k] for k in "xywh")
            f.write("%d %.5f %.5f %.5f %.5f\n" % (CLASSES.index(o["label"]), (x + bw / 2) / w,
                                                  (y + bh / 2) / h, bw / w, bh / h))


def write_train(out, count, seed):
    for d in ("images", "labels"):
        (out / d).mkdir(parents=True, exist_ok=True)
    with Pool(2) as pool:
        pool.starmap(write_sample, [(out, seed, i) for i in range(count)], chunksize=16)


def write_video(out, frames, seed):
    w, h, fps = 640, 480, 25
    codec = (["-c:v", "libx264", "-preset", "slow", "-b:v", "1M", "-maxrate", "1500k", "-bufsize", "2M",
              "-g", "25", "-bf", "0", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
             if out.suffix == ".mp4" else ["-c:v", "mjpeg", "-q:v", "6", "-pix_fmt", "yuvj420p"])
    cmd = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "bgr24", "-s", f"{w}x{h}",
           "-r", str(fps), "-i", "-", *codec, "-threads", "1", "-fflags", "+bitexact",
           "-flags:v", "+bitexact", str(out)]
    scene = Scene(seed, (w, h), frames)
    ffmpeg = subprocess.Popen(cmd, stdin=subprocess.PIPE)
    with open(out.with_suffix(".gt.jsonl"), "w") as gt:
        for i in range(frames):
            img, objects = scene.frame(i)
            ffmpeg.stdin.write(img.tobytes())
            gt.write(json.dumps({"frame": i, "objects": objects}, separators=(",", ":")) + "\n")
    ffmpeg.stdin.close()
    if ffmpeg.wait():
        raise SystemExit("ffmpeg failed")


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--train", type=Path, metavar="DIR")
    ap.add_argument("--video", type=Path, metavar="OUT")
    ap.add_argument("--count", type=int, default=3000)
    ap.add_argument("--frames", type=int, default=250)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()
    if args.train:
        write_train(args.train, args.count, args.seed)
    if args.video:
        write_video(args.video, args.frames, args.seed)
