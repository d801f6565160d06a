"""What these scripts share: letterbox, decoding, suppression and AP50. Makes nothing by itself."""
from pathlib import Path

import cv2
import numpy as np

CLASSES = ["nut", "washer", "bolt", "defect"]
SIZE = 256


def letterbox(bgr, size=SIZE, shrink=cv2.INTER_AREA):
    """RGB uint8 (size, size, 3) padded with 114, the scale and the left and top padding."""
    h, w = bgr.shape[:2]
    scale = min(size / w, size / h)
    nw, nh = round(w * scale), round(h * scale)
    left, top = (size - nw) // 2, (size - nh) // 2
    out = np.full((size, size, 3), 114, np.uint8)
    interpolation = shrink if scale < 1 else cv2.INTER_LINEAR
    out[top:top + nh, left:left + nw] = cv2.resize(bgr, (nw, nh), interpolation=interpolation)[..., ::-1]
    return out, scale, left, top


def to_input(rgb):
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in 0..1."""
    return np.ascontiguousarray(rgb.transpose(0, 3, 1, 2), np.float32) / 255


def iou_matrix(a, b):
    lt, rb = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = np.clip(rb - lt, 0, None).prod(2)
    area = lambda x: (x[:, 2:] - x[:, :2]).prod(1)
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-9)


def nms(box, score, cls, limit):
    """Greedy suppression within a class; indices, best first."""
    order, keep = np.argsort(-score), []
    over = (iou_matrix(box, box) > limit) & (cls[:, None] == cls[None])
    dead = np.zeros(len(box), bool)
    for i in order:
        if not dead[i]:
            keep.append(i)
            dead |= over[i]
    return np.array(keep, int)


def decode(out, conf=0.25, limit=0.5):
    """[4 + C, A] (cx, cy, w, h, scores) -> boxes x1 y1 x2 y2, scores, classes; input pixels."""
    cls, score = out[4:].argmax(0), out[4:].max(0)
    keep = score >= conf
    cx, cy, w, h = out[:4, keep]
    box = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1)
    order = nms(box, score[keep], cls[keep], limit)
    return box[order], score[keep][order], cls[keep][order]


def detect(session, bgr, conf=0.25, limit=0.5, shrink=cv2.INTER_AREA):
    """Run a model of either output layout on one image; boxes in the image's pixels."""
    size = session.get_inputs()[0].shape[2]
    rgb, scale, left, top = letterbox(bgr, size, shrink)
    out = session.run(None, {session.get_inputs()[0].name: to_input(rgb[None])})[0][0]
    if out.shape[-1] == 6:  # end to end: x1, y1, x2, y2, score, class
        out = out[out[:, 4] >= conf]
        box, score, cls = out[:, :4], out[:, 4], out[:, 5].astype(int)
    else:
        box, score, cls = decode(out, conf, limit)
    h, w = bgr.shape[:2]
    box = (box - [left, top, left, top]) / scale
    return box.clip(0, [w, h, w, h]), score, cls


def load_yolo(folder):
    """Yields (BGR image, boxes x1 y1 x2 y2 in pixels, classes) of a --train folder."""
    for path in sorted(Path(folder, "images").glob("*.jpg")):
        img = cv2.imread(str(path))
        h, w = img.shape[:2]
        rows = np.array(Path(folder, "labels", path.stem + ".txt").read_text().split(), float).reshape(-1, 5)
        c, s = rows[:, 1:3], rows[:, 3:5]
        yield img, np.hstack([c - s / 2, c + s / 2]) * [w, h, w, h], rows[:, 0].astype(int)


def evaluate(results, classes=CLASSES, conf=0.4):
    """results: (boxes, scores, classes, true boxes, true classes) an image, at a low threshold.
    Returns {class: (AP50, recall, precision at `conf`, number of true boxes)}."""
    table = {}
    for c, name in enumerate(classes):
        rows, total = [], 0
        for box, score, cls, gt, gt_cls in results:
            gt, m = gt[gt_cls == c], cls == c
            total += len(gt)
            used = np.zeros(len(gt), bool)
            iou = iou_matrix(box[m], gt) if len(gt) else np.zeros((m.sum(), 0))
            for i in np.argsort(-score[m]):
                free = np.where(used, 0, iou[i])
                hit = len(gt) > 0 and free.max() >= 0.5
                if hit:
                    used[free.argmax()] = True
                rows.append((score[m][i], hit))
        rows = np.array(sorted(rows, reverse=True), float).reshape(-1, 2)
        tp = rows[:, 1].cumsum()
        precision = tp / np.arange(1, len(tp) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        ap = (np.diff(tp, prepend=0) * envelope).sum() / max(total, 1)
        n = int((rows[:, 0] >= conf).sum())
        table[name] = (ap, tp[n - 1] / max(total, 1) if n else 0.0, precision[n - 1] if n else 0.0, total)
    return table
