#!/usr/bin/env python3
"""Trains the small anchor-free detector on the CPU and exports it: makes factory_tiny.onnx and factory_tiny_v2.onnx.

  train.py --data DIR --val DIR --seed 1 --epochs 12 --out factory_tiny.onnx

Input `images` [N,3,256,256], RGB 0..1. Output `output0` [N,8,1344]: cx, cy, w,
h in input pixels, then four class scores after the sigmoid; the anchors are
the cells of the strides 8, 16 and 32, row by row.
"""
import argparse
import copy
import math
import time
from pathlib import Path

import cv2
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

import kit

STRIDES = (8, 16, 32)
NC = len(kit.CLASSES)


def conv(i, o, k=3, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Block(nn.Module):
    def __init__(self, c, hidden):
        super().__init__()
        self.body = nn.Sequential(conv(c, hidden), conv(hidden, c))

    def forward(self, x):
        return x + self.body(x)


class Detector(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.c3 = nn.Sequential(conv(3, 16, 3, 2), conv(16, 24, 3, 2), conv(24, 48, 3, 2), Block(48, 32))
        self.c4 = nn.Sequential(conv(48, 80, 3, 2), Block(80, 48))
        self.c5 = nn.Sequential(conv(80, 112, 3, 2), Block(112, 56))
        self.lateral = nn.ModuleList(conv(c, width, 1) for c in (48, 80, 112))
        self.heads = nn.ModuleList(
            nn.Sequential(conv(width, width), nn.Conv2d(width, 4 + NC, 1)) for _ in STRIDES)
        for head in self.heads:
            head[-1].bias.data[:4] = -1.7  # about 1.2 strides from the cell's centre to each side
            head[-1].bias.data[4:] = -4.5  # almost every cell is background
        grid, stride = [], []
        for s in STRIDES:
            n = kit.SIZE // s
            y, x = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
            grid.append((torch.stack([x, y]).reshape(2, -1) + 0.5) * s)
            stride.append(torch.full((1, n * n), float(s)))
        self.register_buffer("points", torch.cat(grid, 1)[None])  # [1, 2, A]
        self.register_buffer("reach", torch.cat(stride, 1)[None] * 8)  # a side is at most 8 strides away

    def forward(self, x):
        """Boxes x1 y1 x2 y2 [N, 4, A] and class logits [N, C, A]."""
        c3 = self.c3(x)
        c4 = self.c4(c3)
        p5 = self.lateral[2](self.c5(c4))
        p4 = self.lateral[1](c4) + F.interpolate(p5, scale_factor=2.0, mode="nearest")
        p3 = self.lateral[0](c3) + F.interpolate(p4, scale_factor=2.0, mode="nearest")
        cells = [(kit.SIZE // s) ** 2 for s in STRIDES]
        out = torch.cat([h(p).reshape(-1, 4 + NC, n) for h, p, n in zip(self.heads, (p3, p4, p5), cells)], 2)
        side = out[:, :4].sigmoid() * self.reach
        return torch.cat([self.points - side[:, :2], self.points + side[:, 2:]], 1), out[:, 4:]


class Export(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        box, logits = self.model(images)
        lt, rb = box[:, :2], box[:, 2:]
        return torch.cat([(lt + rb) * 0.5, rb - lt, logits.sigmoid()], 1)


def export(model, path):
    torch.onnx.export(Export(model).eval(), torch.zeros(1, 3, kit.SIZE, kit.SIZE), str(path), opset_version=17,
                      input_names=["images"], output_names=["output0"], dynamo=False,
                      dynamic_axes={"images": {0: "batch"}, "output0": {0: "batch"}})
    describe(path, model.points.shape[2])


def describe(path, anchors):
    """States the output's fixed sizes and the class names, which the exporter leaves out."""
    graph = onnx.load(str(path))
    dims = graph.graph.output[0].type.tensor_type.shape.dim
    dims[1].dim_value, dims[2].dim_value = 4 + NC, anchors
    onnx.helper.set_model_props(graph, {"names": repr(dict(enumerate(kit.CLASSES))), "imgsz": str([kit.SIZE] * 2)})
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, str(path))


def pair_iou(a, b, generalised=False):
    """IoU (or GIoU) of boxes that broadcast against each other, coordinates last."""
    lt, rb = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    inter = (rb - lt).clamp(0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inter + 1e-7
    iou = inter / union
    if generalised:
        hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1) + 1e-7
        iou = iou - (hull - union) / hull
    return iou


@torch.no_grad()
def assign(box, score, points, gt, gt_cls, valid, k=9):
    """Task-aligned targets: each true box takes the k cells inside it that do best at both tasks.
    Returns scores [B, A, C] and the index of each cell's true box [B, A]."""
    d = torch.cat([points[None, None] - gt[..., None, :2], gt[..., None, 2:] - points[None, None]], -1)
    inside = (d.amin(-1) > 0) & valid[..., None]
    iou = pair_iou(box[:, None], gt[:, :, None]) * inside  # [B, M, A]
    s = score.transpose(1, 2).gather(1, gt_cls[..., None].expand(-1, -1, box.shape[1]))
    metric = s.sqrt() * iou ** 4
    chosen = torch.zeros_like(metric).scatter_(2, metric.topk(k, 2).indices, 1.0) * (metric > 1e-12)
    owner = (iou * chosen).argmax(1)  # a cell that two boxes want goes to the nearer fit
    chosen = chosen * F.one_hot(owner, gt.shape[1]).transpose(1, 2)
    metric = metric * chosen
    quality = metric / metric.amax(2, keepdim=True).clamp(1e-9) * (iou * chosen).amax(2, keepdim=True)
    quality = quality.gather(1, owner[:, None])[:, 0]
    target = F.one_hot(gt_cls.gather(1, owner), NC) * quality[..., None]
    return target, owner


def loss_of(model, images, gt, gt_cls, valid):
    box, logits = model(images)
    box, logits = box.transpose(1, 2), logits.transpose(1, 2)
    target, owner = assign(box.detach(), logits.detach().sigmoid(), model.points[0].T, gt, gt_cls, valid)
    total = target.sum().clamp(1)
    cls = F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / total
    weight = target.sum(-1)
    hit = weight > 0
    truth = gt.gather(1, owner[..., None].expand(-1, -1, 4))
    reg = ((1 - pair_iou(box[hit], truth[hit], True)) * weight[hit]).sum() / total
    return cls + 4 * reg


def load(folder):
    images, labels = [], []
    for img, box, cls in kit.load_yolo(folder):
        rgb, scale, left, top = kit.letterbox(img)
        images.append(rgb)
        labels.append(np.hstack([box * scale + [left, top, left, top], cls[:, None]]).astype(np.float32))
    return np.stack(images), labels


def augment(rng, img, label):
    """Zoom, shift, mirror, turn, and change the light; parts mostly cut off lose their label."""
    n, z = kit.SIZE, rng.uniform(0.8, 1.25)
    shift = rng.uniform(-28, 28, 2) + n / 2 * (1 - z)
    img = cv2.warpAffine(img, np.array([[z, 0, shift[0]], [0, z, shift[1]]]), (n, n), borderValue=(114,) * 3)
    box = label[:, :4] * z + np.tile(shift, 2)
    cut = box.clip(0, n)
    area = lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    keep = area(cut) > 0.55 * area(box)
    box, cls = cut[keep], label[keep, 4:]
    if rng.random() < 0.5:
        img, box = img[:, ::-1], np.stack([n - box[:, 2], box[:, 1], n - box[:, 0], box[:, 3]], 1)
    if rng.random() < 0.5:
        img, box = img[::-1], np.stack([box[:, 0], n - box[:, 3], box[:, 2], n - box[:, 1]], 1)
    if rng.random() < 0.5:
        img, box = img.transpose(1, 0, 2), box[:, [1, 0, 3, 2]]
    x = img.astype(np.float32) * rng.uniform(0.75, 1.25) * rng.uniform(0.94, 1.06, 3) + rng.uniform(-12, 12)
    return (x.clip(0, 255) / 255).transpose(2, 0, 1).astype(np.float32), np.hstack([box, cls])


def batch(rng, images, labels, index):
    pairs = [augment(rng, images[i], labels[i]) for i in index]
    m = max(1, max(len(l) for _, l in pairs))
    gt = np.zeros((len(pairs), m, 5), np.float32)
    valid = np.zeros((len(pairs), m), bool)
    for i, (_, l) in enumerate(pairs):
        gt[i, :len(l)], valid[i, :len(l)] = l, True
    gt = torch.from_numpy(gt)
    return torch.from_numpy(np.stack([x for x, _ in pairs])), gt[..., :4], gt[..., 4].long(), torch.from_numpy(valid)


@torch.no_grad()
def validate(model, images, labels):
    run, results = Export(model).eval(), []
    for i in range(0, len(images), 50):
        out = run(torch.from_numpy(kit.to_input(images[i:i + 50]))).numpy()
        for o, l in zip(out, labels[i:i + 50]):
            results.append((*kit.decode(o, 0.05), l[:, :4], l[:, 4].astype(int)))
    return {k: round(float(v[0]), 4) for k, v in kit.evaluate(results).items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--val", type=Path, required=True)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    images, labels = load(args.data)
    val = load(args.val)
    model = Detector().to(memory_format=torch.channels_last)
    print("parameters", sum(p.numel() for p in model.parameters()), flush=True)
    ema = copy.deepcopy(model)
    steps = len(images) // args.batch * args.epochs
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.03}, {"params": rest, "weight_decay": 0.0}], lr=args.lr)
    warm = 150
    rate = lambda t: min(1, (t + 1) / warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * t / steps)))
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    step, start = 0, time.time()
    for epoch in range(args.epochs):
        order, sums = rng.permutation(len(images)), []
        model.train()
        for i in range(0, len(order) - args.batch + 1, args.batch):
            x, *truth = batch(rng, images, labels, order[i:i + args.batch])
            loss = loss_of(model, x.contiguous(memory_format=torch.channels_last), *truth)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10)
            opt.step()
            schedule.step()
            step += 1
            keep = min(0.998, step / (step + 50))
            with torch.no_grad():
                for a, b in zip(ema.state_dict().values(), model.state_dict().values()):
                    a.lerp_(b, 1 - keep) if a.is_floating_point() else a.copy_(b)
            sums.append(loss.item())
        print(f"epoch {epoch + 1} loss {np.mean(sums):.3f} {time.time() - start:.0f} s", validate(ema, *val), flush=True)
    export(ema, args.out)


if __name__ == "__main__":
    main()
