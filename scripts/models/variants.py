#!/usr/bin/env python3
"""Derives test models from a trained one, without training: makes factory_tiny_bad, _int8 and _e2e.onnx.

  variants.py bad  factory_tiny.onnx factory_tiny_bad.onnx    same shapes, wrong answers
  variants.py int8 factory_tiny.onnx factory_tiny_int8.onnx --data DIR    static QDQ
  variants.py e2e  factory_tiny.onnx factory_tiny_e2e.onnx    output [N,100,6] after NMS
"""
import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

import kit

TOP = 100


def head_convs(model):
    """The last convolution of each stride: those with one output channel per row of the result."""
    rows = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    sizes = {t.name: t.dims[0] for t in model.graph.initializer if t.dims}
    return [n for n in model.graph.node if n.op_type == "Conv" and sizes[n.input[1]] == rows]


def bad(model):
    """Every class is reported as the next one and every box is shrunk and shifted: confident and wrong."""
    tensors = {t.name: t for t in model.graph.initializer}
    order = [0, 1, 2, 3, 7, 4, 5, 6]
    for node in head_convs(model):
        for name in node.input[1:]:
            value = numpy_helper.to_array(tensors[name])[order].copy()
            if value.ndim == 1:
                value[:4] += [-1.5, 0.6, 0.6, -1.5]
            tensors[name].CopyFrom(numpy_helper.from_array(value, name))
    return model


class Frames(CalibrationDataReader):
    def __init__(self, folder, count):
        self.it = itertools.islice(kit.load_yolo(folder), count)

    def get_next(self):
        sample = next(self.it, None)
        return sample and {"images": kit.to_input(kit.letterbox(sample[0])[0][None])}


def int8(source, target, folder):
    """Quantises the convolutions and what lies between them; the box arithmetic stays in float.
    One scale a tensor: tract 0.22 accepts a scale for each channel but computes something else with it."""
    with tempfile.TemporaryDirectory() as tmp:
        ready = Path(tmp, "ready.onnx")
        quant_pre_process(str(source), str(ready), skip_symbolic_shape=True)
        model = onnx.load(str(ready))
        tail, wanted = set(), {o for n in head_convs(model) for o in n.output}
        for node in model.graph.node:  # everything that follows the heads
            if wanted & set(node.input):
                tail.add(node.name)
                wanted |= set(node.output)
        quantize_static(str(ready), str(target), Frames(folder, 100), quant_format=QuantFormat.QDQ,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                        op_types_to_quantize=["Conv", "Add", "Resize", "Relu"], nodes_to_exclude=sorted(tail))
    model = onnx.load(str(target))
    del model.graph.value_info[:]  # shapes with a symbolic batch, at which tract stops when the batch is given
    del model.opset_import[1:]  # only the standard operators are used
    onnx.save(model, str(target))


def e2e(model):
    """Appends suppression: 100 rows x1, y1, x2, y2, score, class for each image, the unused ones zero."""
    g = model.graph
    out = g.output[0].name
    classes = g.output[0].type.tensor_type.shape.dim[1].dim_value - 4
    anchors = g.output[0].type.tensor_type.shape.dim[2].dim_value
    const = lambda name, value, kind: g.initializer.append(numpy_helper.from_array(np.array(value, kind), name))
    for name, value in {"c0": [0], "c2": [2], "c4": [4], "c_end": [4 + classes], "ax1": [1], "axm": [-1],
                        "top": [TOP], "anchors": [anchors], "per_class": [TOP], "flat": [0, classes * anchors],
                        "four": [1, 1, 4]}.items():
        const("e2e_" + name, value, np.int64)
    for name, value in {"half": 0.5, "iou": [0.5], "conf": [0.05], "zero": 0.0}.items():
        const("e2e_" + name, value, np.float32)
    k = lambda *names: ["e2e_" + n for n in names]

    def node(op, inputs, outputs, **attr):
        g.node.append(helper.make_node(op, inputs, outputs, name=f"e2e_{op}_{len(g.node)}", **attr))

    node("Slice", [out, *k("c0", "c2", "ax1")], ["xy"])
    node("Slice", [out, *k("c2", "c4", "ax1")], ["wh"])
    node("Slice", [out, *k("c4", "c_end", "ax1")], ["scores"])
    node("Mul", ["wh", *k("half")], ["half_wh"])
    node("Sub", ["xy", "half_wh"], ["lt"])
    node("Add", ["xy", "half_wh"], ["rb"])
    node("Concat", ["lt", "rb"], ["corners"], axis=1)
    node("Transpose", ["corners"], ["boxes"], perm=[0, 2, 1])
    node("NonMaxSuppression", ["boxes", "scores", *k("per_class", "iou", "conf")], ["kept"])  # rows image, class, anchor
    node("GatherND", ["scores", "kept"], ["kept_scores"])
    node("Mul", ["scores", *k("zero")], ["blank"])
    node("ScatterND", ["blank", "kept", "kept_scores"], ["sparse"])
    node("Reshape", ["sparse", *k("flat")], ["flat"])
    node("TopK", ["flat", *k("top")], ["best", "where"], axis=1)
    node("Div", ["where", *k("anchors")], ["cls_index"])
    node("Mod", ["where", *k("anchors")], ["anchor"])
    node("Unsqueeze", ["anchor", *k("axm")], ["anchor3"])
    node("Tile", ["anchor3", *k("four")], ["anchor4"])
    node("GatherElements", ["boxes", "anchor4"], ["best_boxes"], axis=1)
    node("Unsqueeze", ["best", *k("axm")], ["score3"])
    node("Cast", ["cls_index"], ["cls_float"], to=TensorProto.FLOAT)
    node("Unsqueeze", ["cls_float", *k("axm")], ["cls3"])
    node("Concat", ["best_boxes", "score3", "cls3"], ["rows"], axis=2)
    node("Greater", ["score3", *k("zero")], ["used"])
    node("Cast", ["used"], ["used_float"], to=TensorProto.FLOAT)
    node("Mul", ["rows", "used_float"], ["detections"])
    del g.output[:]
    g.output.append(helper.make_tensor_value_info("detections", TensorProto.FLOAT, ["batch", TOP, 6]))
    return model


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("kind", choices=["bad", "int8", "e2e"])
    ap.add_argument("source", type=Path)
    ap.add_argument("target", type=Path)
    ap.add_argument("--data", type=Path, help="calibration images (int8), a folder made by belt.py --train")
    args = ap.parse_args()
    if args.kind == "int8":
        int8(args.source, args.target, args.data)
    else:
        onnx.save({"bad": bad, "e2e": e2e}[args.kind](onnx.load(str(args.source))), str(args.target))
    onnx.checker.check_model(str(args.target), full_check=True)
