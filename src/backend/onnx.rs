//! What an ONNX file says of itself: its inputs and outputs, its class names.
//!
//! No engine is needed for this, so a model that no engine here can run still tells what it is. Both engines give the same
//! names, shapes and errors because they ask here, and bytes that are no model never reach a C++ parser.

use std::fmt;

use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{GraphProto, ModelProto, TensorProto, ValueInfoProto, tensor_proto, type_proto};
use tract_onnx::prelude::Framework;

use super::tensor::{Dim, ElementType, Shape, TensorSpec};
use crate::telemetry::printable;

/// [`OnnxTensor::element`] of what is no tensor, such as a sequence of them.
const NO_TENSOR: &str = "(no tensor)";

/// The head of an ONNX file.
#[derive(Clone, Debug, PartialEq)]
pub struct Onnx {
    /// Who wrote it: the exporter's name and version.
    pub producer: String,
    /// The version of the standard operators.
    pub opset: i64,
    /// Number of operations.
    pub nodes: usize,
    /// What it takes; weights, which old exporters list too, are not among them.
    pub inputs: Vec<OnnxTensor>,
    /// What it gives; at least one.
    pub outputs: Vec<OnnxTensor>,
    /// Names of its classes, if it has them: the metadata `names` that YOLO exporters write.
    pub names: Option<Vec<String>>,
    /// The height and width that it was trained for, if it says so: the metadata `imgsz`.
    pub image_size: Option<(u32, u32)>,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnnxTensor {
    /// Its name, without control characters.
    pub name: String,
    /// Its type, as ONNX calls it.
    pub element: &'static str,
    /// Its sizes; none where the file does not tell them.
    pub dims: Vec<OnnxDim>,
}

/// One size of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnnxDim {
    /// Always this many, at least 1.
    Fixed(usize),
    /// Known when it runs; the name that the exporter gave it, often empty.
    Open(String),
}

/// The inputs and outputs of a file that Gantry can feed and read, as it declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// The only input.
    pub input: TensorSpec,
    /// The outputs, all of 32-bit floats.
    pub outputs: Vec<DeclaredOutput>,
}

/// An output, whose shape a file may leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeclaredOutput {
    /// Its name.
    pub name: String,
    /// Its shape, if the file has one.
    pub shape: Option<Shape>,
}

/// Reads the head of an ONNX file.
///
/// # Errors
/// A sentence, when the bytes are no ONNX model or are cut off.
pub fn read(bytes: &[u8]) -> Result<Onnx, String> {
    let (proto, graph) = parse(bytes)?;
    head(&proto, &graph)
}

/// Reads an ONNX file for an engine: it is whole, and has one input that Gantry feeds and outputs that it reads.
///
/// # Errors
/// A sentence, when it is not that.
pub(super) fn load(bytes: &[u8]) -> Result<(ModelProto, Signature), String> {
    let (mut proto, graph) = parse(bytes)?;
    for initializer in &graph.initializer {
        check_initializer(initializer)?;
    }
    let signature = signature(head(&proto, &graph)?)?;
    check_made(&graph, &signature)?;
    proto.graph = Some(graph);
    Ok((proto, signature))
}

impl OnnxTensor {
    /// The tensor as a manifest declares it.
    ///
    /// # Errors
    /// A sentence, when a manifest cannot declare a tensor of its type.
    pub fn spec(&self) -> Result<TensorSpec, String> {
        let element_type = self.element_type().ok_or_else(|| {
            format!(
                "`{}` is {}, and only float32, float16, bfloat16, uint8 and int8 are known",
                self.name,
                self.is_of()
            )
        })?;
        Ok(TensorSpec { name: self.name.clone(), element_type, shape: self.shape() })
    }

    /// Its shape, without the names of sizes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        let dim = |dim: &OnnxDim| match dim {
            OnnxDim::Fixed(size) => Dim::Fixed(*size),
            OnnxDim::Open(_) => Dim::Dynamic,
        };
        Shape(self.dims.iter().map(dim).collect())
    }

    fn element_type(&self) -> Option<ElementType> {
        match self.element {
            "float32" => Some(ElementType::F32),
            "float16" => Some(ElementType::F16),
            "bfloat16" => Some(ElementType::Bf16),
            "uint8" => Some(ElementType::U8),
            "int8" => Some(ElementType::I8),
            _ => None,
        }
    }

    fn is_of(&self) -> String {
        if self.element == NO_TENSOR { "no tensor".to_owned() } else { format!("of type {}", self.element) }
    }
}

impl fmt::Display for OnnxTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(OnnxDim::to_string).collect();
        write!(f, "{} {} [{}]", self.name, self.element, dims.join(", "))
    }
}

impl fmt::Display for OnnxDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Open(name) if name.is_empty() => f.write_str("?"),
            Self::Open(name) => f.write_str(name),
        }
    }
}

/// The file, and its graph, taken out of it.
fn parse(bytes: &[u8]) -> Result<(ModelProto, GraphProto), String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut proto = tract_onnx::onnx()
        .proto_model_for_read(&mut &*bytes)
        .map_err(|error| format!("it is cut off or no ONNX model ({})", error.root_cause()))?;
    let graph = proto.graph.take().ok_or("it has no graph; it is cut off or no ONNX model")?;
    Ok((proto, graph))
}

fn head(proto: &ModelProto, graph: &GraphProto) -> Result<Onnx, String> {
    if graph.output.is_empty() {
        return Err("it has no output; it is cut off or no ONNX model".to_owned());
    }
    let mut tensors = graph.input.iter().chain(&graph.output);
    if tensors.any(|tensor| tensor.name.chars().any(char::is_control)) {
        return Err("an input or output has a control character in its name".to_owned());
    }
    let property = |key: &str| {
        let found = proto.metadata_props.iter().find(|property| property.key == key);
        found.map(|property| property.value.as_str())
    };
    Ok(Onnx {
        producer: printable(format!("{} {}", proto.producer_name, proto.producer_version).trim()),
        opset: proto.opset_import.iter().find(|set| set.domain.is_empty()).map_or(0, |set| set.version),
        nodes: graph.node.len(),
        inputs: graph.input.iter().filter(|input| !is_weight(graph, &input.name)).map(tensor).collect(),
        outputs: graph.output.iter().map(tensor).collect(),
        names: property("names").and_then(|names| parse_names(&printable(names))),
        image_size: property("imgsz").and_then(parse_size),
    })
}

fn signature(head: Onnx) -> Result<Signature, String> {
    let input = match head.inputs.as_slice() {
        [input] => input,
        [] => return Err("it has no input".to_owned()),
        inputs => {
            let names: Vec<_> = inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(format!("it has {} inputs ({}); Gantry feeds one", names.len(), names.join(", ")));
        }
    };
    let name = input.name.clone();
    let Some(element_type) = input.element_type() else {
        return Err(format!(
            "its input `{name}` is {}; Gantry feeds f32, f16, bf16, u8 and i8",
            input.is_of()
        ));
    };
    if input.dims.is_empty() {
        return Err(format!("its input `{name}` has no shape"));
    }
    let input = TensorSpec { name, element_type, shape: input.shape() };
    let output = |output: OnnxTensor| match output.element_type() {
        Some(ElementType::F32) => {
            let shape = Some(output.shape()).filter(|_| !output.dims.is_empty());
            Ok(DeclaredOutput { name: output.name, shape })
        }
        _ => Err(format!("its output `{}` is {}; Gantry reads f32", output.name, output.is_of())),
    };
    let outputs = head.outputs.into_iter().map(output).collect::<Result<_, _>>()?;
    Ok(Signature { input, outputs })
}

/// tract panics on an output that nothing makes.
fn check_made(graph: &GraphProto, signature: &Signature) -> Result<(), String> {
    let made = |name: &String| {
        *name == signature.input.name
            || is_weight(graph, name)
            || graph.node.iter().any(|node| node.output.contains(name))
    };
    match signature.outputs.iter().find(|output| !made(&output.name)) {
        Some(output) => Err(format!("no node of it makes its output `{}`", output.name)),
        None => Ok(()),
    }
}

/// Whether it is a weight; old exporters list those among the inputs too.
fn is_weight(graph: &GraphProto, name: &str) -> bool {
    graph.initializer.iter().any(|weight| weight.name == name)
}

fn tensor(info: &ValueInfoProto) -> OnnxTensor {
    let declared = info.r#type.as_ref().and_then(|declared| declared.value.as_ref());
    let tensor = declared.map(|type_proto::Value::TensorType(tensor)| tensor);
    let dim = |dim: &Dimension| match &dim.value {
        Some(dimension::Value::DimValue(size)) => match usize::try_from(*size) {
            Ok(size) if size > 0 => OnnxDim::Fixed(size),
            // Some exporters write 0 or -1 for a size that is open.
            _ => OnnxDim::Open(String::new()),
        },
        Some(dimension::Value::DimParam(name)) => OnnxDim::Open(printable(name)),
        None => OnnxDim::Open(String::new()),
    };
    let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
    OnnxTensor {
        name: info.name.clone(),
        element: tensor.map_or(NO_TENSOR, |tensor| element(tensor.elem_type)),
        dims: shape.map(|shape| shape.dim.iter().map(dim).collect()).unwrap_or_default(),
    }
}

/// A weight whose bytes do not fit its shape would make an engine allocate what the file's damage says.
fn check_initializer(tensor: &TensorProto) -> Result<(), String> {
    if tensor.data_location == Some(tensor_proto::DataLocation::External as i32) {
        return Err(format!(
            "its weight `{}` is in another file; export the model with its weights inside",
            tensor.name
        ));
    }
    let len = tensor.dims.iter().try_fold(1usize, |len, &dim| len.checked_mul(usize::try_from(dim).ok()?));
    let held = element_bits(tensor.data_type).map(|bits| (tensor.raw_data.len() * 8).div_ceil(bits));
    let fits = match (len, held) {
        (None, _) => false,
        (Some(len), Some(held)) if !tensor.raw_data.is_empty() => len == held,
        (Some(len), _) => len <= typed_len(tensor).max(1),
    };
    fits.then_some(())
        .ok_or_else(|| format!("its weight `{}` has fewer or more bytes than its shape", tensor.name))
}

/// Values in the fields for typed values, of which an ONNX tensor fills at most one. Small types share an integer.
fn typed_len(tensor: &TensorProto) -> usize {
    [
        tensor.float_data.len(),
        tensor.int32_data.len() * 8,
        tensor.int64_data.len(),
        tensor.double_data.len(),
        tensor.uint64_data.len(),
        tensor.string_data.len(),
    ]
    .into_iter()
    .max()
    .unwrap_or(0)
}

fn element_bits(elem_type: i32) -> Option<usize> {
    use tensor_proto::DataType as T;
    match data_type(elem_type)? {
        T::Int4 | T::Uint4 => Some(4),
        T::Uint8 | T::Int8 | T::Bool => Some(8),
        T::Uint16 | T::Int16 | T::Float16 | T::Bfloat16 => Some(16),
        T::Float | T::Int32 | T::Uint32 => Some(32),
        T::Int64 | T::Uint64 | T::Double => Some(64),
        _ => None,
    }
}

fn data_type(elem_type: i32) -> Option<tensor_proto::DataType> {
    tensor_proto::DataType::try_from(elem_type).ok()
}

/// ONNX's names of its types, by their numbers in the format.
fn element(kind: i32) -> &'static str {
    match kind {
        1 => "float32",
        2 => "uint8",
        3 => "int8",
        4 => "uint16",
        5 => "int16",
        6 => "int32",
        7 => "int64",
        8 => "string",
        9 => "bool",
        10 => "float16",
        11 => "float64",
        16 => "bfloat16",
        _ => "unknown",
    }
}

/// Class names as Python prints them: `{0: 'nut', 1: "bolt's"}` with the numbers in order, or `['nut', 'bolt']`.
fn parse_names(text: &str) -> Option<Vec<String>> {
    let mut rest = text.trim();
    let (close, numbered) = match rest.chars().next()? {
        '{' => ('}', true),
        '[' => (']', false),
        _ => return None,
    };
    rest = rest[1..].trim_start();
    let mut names = Vec::new();
    while !rest.starts_with(close) {
        if numbered {
            let (number, after) = rest.split_once(':')?;
            (number.trim().parse() == Ok(names.len())).then_some(())?;
            rest = after.trim_start();
        }
        let (name, after) = parse_quoted(rest)?;
        names.push(name);
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    (!names.is_empty()).then_some(names)
}

/// A Python string at the start of `text`, and what follows it.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.char_indices();
    let quote = chars.next().map(|(_, c)| c).filter(|c| matches!(c, '\'' | '"'))?;
    let mut value = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next().map(|(_, escaped)| escaped)?),
            _ => value.push(c),
        }
    }
    None
}

/// `[256, 320]`: height and width.
fn parse_size(text: &str) -> Option<(u32, u32)> {
    let (height, width) = text.trim().strip_prefix('[')?.strip_suffix(']')?.split_once(',')?;
    Some((height.trim().parse().ok()?, width.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_are_read_as_python_prints_them() {
        let names = |text| parse_names(text).unwrap_or_default();
        assert_eq!(names("{0: 'nut', 1: \"bolt's\", 2: 'a\\'b, c'}"), ["nut", "bolt's", "a'b, c"]);
        assert_eq!(names(" ['nut', 'bolt' ] "), ["nut", "bolt"]);
        for bad in ["", "{}", "{1: 'nut'}", "{0: 'nut'", "{0: nut}", "nut", "{0: 'nu", "[", "{0:"] {
            assert_eq!(parse_names(bad), None, "{bad}");
        }
        assert_eq!(parse_size("[256, 320]"), Some((256, 320)));
        assert_eq!(parse_size("256"), None);
    }
}
