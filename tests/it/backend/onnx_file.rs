//! Writes small ONNX files, so that a test can say in one line what is odd about its model.

/// ONNX's number for 32-bit floats.
pub(super) const F32: u64 = 1;
/// ONNX's number for 8-bit unsigned integers.
pub(super) const U8: u64 = 2;
/// ONNX's number for 8-bit signed integers.
pub(super) const I8: u64 = 3;
/// ONNX's number for 16-bit floats of IEEE 754.
pub(super) const F16: u64 = 10;
/// ONNX's number for 16-bit floats with a long exponent.
pub(super) const BF16: u64 = 16;
/// ONNX's number for 64-bit integers.
pub(super) const I64: u64 = 7;

/// A graph of nodes in a row.
#[derive(Clone, Default)]
pub(super) struct OnnxFile {
    graph: Vec<u8>,
    nodes: u64,
}

impl OnnxFile {
    /// Adds an input. A negative size is open.
    pub(super) fn input(mut self, name: &str, element_type: u64, dims: &[i64]) -> Self {
        message(&mut self.graph, 11, &value_info(name, element_type, Some(dims)));
        self
    }

    /// Adds an output; without `dims` the file says nothing of its shape.
    pub(super) fn output(mut self, name: &str, element_type: u64, dims: Option<&[i64]>) -> Self {
        message(&mut self.graph, 12, &value_info(name, element_type, dims));
        self
    }

    /// Adds a node that makes `output` from `inputs`.
    pub(super) fn node(self, op: &str, inputs: &[&str], output: &str) -> Self {
        self.node_with(op, inputs, output, &[])
    }

    /// Adds a node with integer attributes.
    pub(super) fn node_with(mut self, op: &str, inputs: &[&str], output: &str, ints: &[(&str, u64)]) -> Self {
        let mut node = Vec::new();
        for input in inputs {
            message(&mut node, 1, input.as_bytes());
        }
        message(&mut node, 2, output.as_bytes());
        message(&mut node, 3, format!("node{}", self.nodes).as_bytes());
        message(&mut node, 4, op.as_bytes());
        for &(name, value) in ints {
            let mut attribute = Vec::new();
            message(&mut attribute, 1, name.as_bytes());
            number(&mut attribute, 3, value);
            number(&mut attribute, 20, 2);
            message(&mut node, 5, &attribute);
        }
        self.nodes += 1;
        message(&mut self.graph, 1, &node);
        self
    }

    /// The file.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        message(&mut self.graph, 2, b"graph");
        let mut opset = Vec::new();
        number(&mut opset, 2, 17);
        let mut model = Vec::new();
        number(&mut model, 1, 8);
        message(&mut model, 7, &self.graph);
        message(&mut model, 8, &opset);
        model
    }
}

fn value_info(name: &str, element_type: u64, dims: Option<&[i64]>) -> Vec<u8> {
    let mut tensor = Vec::new();
    number(&mut tensor, 1, element_type);
    if let Some(dims) = dims {
        let mut shape = Vec::new();
        for &size in dims {
            let mut dim = Vec::new();
            match u64::try_from(size) {
                Ok(size) => number(&mut dim, 1, size),
                Err(_) => message(&mut dim, 2, format!("open{}", -size).as_bytes()),
            }
            message(&mut shape, 1, &dim);
        }
        message(&mut tensor, 2, &shape);
    }
    let mut declared = Vec::new();
    message(&mut declared, 1, &tensor);
    let mut info = Vec::new();
    message(&mut info, 1, name.as_bytes());
    message(&mut info, 2, &declared);
    info
}

/// A field of bytes: protobuf's wire type 2.
fn message(to: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// A field of a number: protobuf's wire type 0.
fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        if value == 0 {
            to.push(low);
            return;
        }
        to.push(low | 0x80);
    }
}
