//! Execution traces of Chakra (MLCommons, schema/protobuf/et_def.proto): protobuf messages, each preceded by its length: first the
//! metadata, then the nodes of one rank. The sizes are those of Chakra's converter (src/converter/pytorch_node.py): the bytes that a rank
//! passes in.

use super::kineto::{TorchGroup, world};
use super::pytorch::{Part, read_list};
use crate::trace::call::{
    CallDetail, CallKind, ComputingSpan, Elements, FileTrace, Named, TracedCall, TracedGroup, element_of_tensor,
    element_of_torch, elements_to_each, named,
};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};
use prost::Message;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, repeated, tag = "2")]
    attr: Vec<Attribute>,
}

/// The value has one of the types; unused types are left out.
#[derive(Clone, PartialEq, prost::Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, optional, tag = "7")]
    int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    uint64: Option<u64>,
    #[prost(bool, optional, tag = "27")]
    bool: Option<bool>,
    #[prost(string, optional, tag = "29")]
    string: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Tensors {
    #[prost(string, tag = "1")]
    values: String,
    #[prost(string, tag = "3")]
    types: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, tag = "6")]
    start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    duration_micros: u64,
    #[prost(message, optional, tag = "8")]
    inputs: Option<Tensors>,
    #[prost(message, repeated, tag = "10")]
    attr: Vec<Attribute>,
}

/// Numbers of `NodeType`.
const METADATA: i32 = 1;

const COMPUTING: i32 = 4;

const SEND: i32 = 5;

const RECEIVE: i32 = 6;

const COLLECTIVE: i32 = 7;

const GROUPS: &str = "process_group:init";

/// Whether these are the first bytes of such a trace: metadata with a version or named attributes.
pub(super) fn is_chakra(start: &[u8]) -> bool {
    let Ok(metadata) = Metadata::decode_length_delimited(start) else { return false };
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    match &metadata.attr[..] {
        [] => is_word(&metadata.version),
        attributes => attributes.iter().all(|of| is_word(&of.name)),
    }
}

/// Reads a trace. A truncated or damaged one is read up to that point, with a note.
pub(super) fn read(mut source: impl Read) -> FileTrace {
    let mut reading = Reading::default();
    let mut read_all = || -> std::io::Result<()> {
        // The first message is the metadata.
        next_message(&mut source)?;
        while let Some(message) = next_message(&mut source)? {
            reading.take(&Node::decode(message.as_slice())?);
        }
        Ok(())
    };
    if let Err(cause) = read_all() {
        reading.file.note_end(format_args!("{} nodes", reading.nodes), cause);
    }
    reading.finish()
}

/// The bytes of the next message, if there is one.
fn next_message(source: &mut impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut length = 0_u64;
    for at in 0.. {
        let mut byte = [0];
        match source.read_exact(&mut byte) {
            Err(cause) if cause.kind() == ErrorKind::UnexpectedEof && at == 0 => return Ok(None),
            ended => ended?,
        }
        if at == 9 {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "a length of more than nine bytes"));
        }
        length |= u64::from(byte[0] & 0x7f) << (7 * at);
        if byte[0] < 0x80 {
            break;
        }
    }
    // A wrong length must not be allocated.
    let mut message = Vec::new();
    source.take(length).read_to_end(&mut message)?;
    let cut = || std::io::Error::new(ErrorKind::UnexpectedEof, format!("a message of {length} bytes is incomplete"));
    if message.len() as u64 == length { Ok(Some(message)) } else { Err(cut()) }
}

#[derive(Default)]
struct Reading {
    file: FileTrace,
    groups: Vec<TorchGroup>,
    nodes: u64,
    on_the_host: u64,
}

impl Reading {
    fn take(&mut self, node: &Node) {
        self.nodes += 1;
        if node.kind == METADATA && node.name.contains(GROUPS) {
            self.groups = node.inputs.as_ref().map_or_else(Vec::new, |inputs| groups(&inputs.values));
        }
        let kind = match node.kind {
            SEND => CallKind::Send,
            RECEIVE => CallKind::Receive,
            COLLECTIVE => match node.number("comm_type").and_then(collective) {
                Some(collective) => CallKind::Collective(collective),
                None => return self.file.skip_unknown(&node.name),
            },
            COMPUTING => return self.take_computing(node),
            _ => return,
        };
        // The kernel of the call has its own node.
        if node.is_on_the_host() {
            self.on_the_host += 1;
            return;
        }
        self.take_call(kind, node);
    }

    /// Kernels only; host work is not GPU computing.
    fn take_computing(&mut self, node: &Node) {
        if node.duration_micros > 0 && !node.is_on_the_host() {
            self.file.computing.extend(node.span_nanoseconds());
        }
    }

    fn take_call(&mut self, kind: CallKind, node: &Node) {
        let group = self.group(node);
        let ranks = group.size;
        let is_barrier = kind == CallKind::Collective(Collective::Barrier);
        let bytes = if is_barrier { Some(0) } else { node.number("comm_size") };
        let Some(bytes_total) = bytes.and_then(|bytes| whole(kind, bytes, ranks)) else {
            return self.file.skip_unknown(&format!("{kind} without comm_size"));
        };
        let group = self.file.group(group);
        let element = node.inputs.as_ref().and_then(|inputs| element_of_tensor(&inputs.types)).filter(|_| !is_barrier);
        let duration = (node.duration_micros > 0).then_some(Seconds(node.duration_micros as f64 / 1e6));
        let begin_nanoseconds = node.span_nanoseconds().map(|span| span.start).filter(|begin| *begin > 0);
        let detail = CallDetail { begin_nanoseconds, ..CallDetail::default() };
        self.file.calls.push(TracedCall { group, duration, detail, ..TracedCall::new(kind, element, bytes_total) });
    }

    fn group(&self, node: &Node) -> TracedGroup {
        let name = node.attribute("pg_name").and_then(|of| of.string.clone()).unwrap_or_default();
        match self.groups.iter().find(|known| known.pg_name == name) {
            Some(known) => known.traced(),
            None => TracedGroup { name, size: None, ranks: None },
        }
    }

    fn finish(mut self) -> FileTrace {
        if self.on_the_host > 0 {
            self.file.notes.push(format!("{} nodes are the host part of calls, and are not counted", self.on_the_host));
        }
        if self.file.groups.iter().any(|group| group.size.is_none()) {
            let note = "some calls do not name their group; the size of an all_gather is then the input of one rank";
            self.file.notes.push(note.to_owned());
        }
        self.file.world = world(&self.groups);
        self.file
    }
}

impl Node {
    fn is_on_the_host(&self) -> bool {
        self.attribute("is_cpu_op").and_then(|of| of.bool) == Some(true)
    }

    fn span_nanoseconds(&self) -> Option<ComputingSpan> {
        let end = self.start_time_micros.checked_add(self.duration_micros)?;
        Some(self.start_time_micros.checked_mul(1000)?..end.checked_mul(1000)?)
    }

    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attr.iter().find(|attribute| attribute.name == name)
    }

    /// A number, in whichever type it was written.
    fn number(&self, name: &str) -> Option<u64> {
        let of = self.attribute(name)?;
        let signed = of.int64.or(of.int32.map(i64::from)).and_then(|number| u64::try_from(number).ok());
        signed.or(of.uint64).or(of.uint32.map(u64::from))
    }
}

/// `CollectiveCommType` of the schema, by its numbers.
const COLLECTIVES: &str =
    "all_reduce reduce all_gather gather scatter broadcast all_to_all reduce_scatter reduce_scatter barrier";

fn collective(number: u64) -> Option<Collective> {
    COLLECTIVES.split(' ').nth(usize::try_from(number).ok()?)?.parse().ok()
}

/// The size argument in the sense of nccl-tests for a call with this many input bytes per rank.
fn whole(kind: CallKind, bytes: u64, ranks: Option<u32>) -> Option<Bytes> {
    let blocks = match kind {
        CallKind::Collective(Collective::AllGather | Collective::Gather) => ranks.unwrap_or(1),
        _ => 1,
    };
    bytes.checked_mul(u64::from(blocks)).map(Bytes)
}

/// The groups in `['[{"pg_name": "0", ...}]']`: a Python list with a JSON text.
fn groups(values: &str) -> Vec<TorchGroup> {
    let inner = values.find('\'').zip(values.rfind('\'')).and_then(|(from, to)| values.get(from + 1..to));
    inner.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

// Execution traces of PyTorch (`ExecutionTraceObserver`, torch/csrc/profiler/standalone/execution_trace_observer.cpp), from which Chakra's
// traces are made. A call is a node `record_param_comms`: since PyTorch 2.4 its attributes give collective, sizes and group, before that
// its inputs. It has no times.

const CALL: &str = "record_param_comms";

const GLOO: &str = "gloo:";

const EXECUTION_TRACE_GROUPS: &str = "## process_group:init ##";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExecutionTraceNode {
    name: String,
    attrs: Vec<ExecutionTraceAttribute>,
    #[serde(flatten)]
    other: HashMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct ExecutionTraceAttribute {
    name: String,
    #[serde(default)]
    value: Value,
}

/// A call as a node describes it.
struct Described {
    name: String,
    element: Option<ElementType>,
    elements: Elements,
    group: Option<TracedGroup>,
    /// For an uneven all_to_all.
    elements_to_each: Option<Vec<u64>>,
}

#[derive(Default)]
struct ExecutionTraceReading {
    file: FileTrace,
    groups: Vec<TorchGroup>,
    nodes: u64,
    without_group: u64,
    of_gloo: u64,
}

/// Reads a trace. A truncated or damaged one is read up to that point, with a note.
pub(super) fn read_execution_trace(source: impl Read) -> FileTrace {
    let mut reading = ExecutionTraceReading::default();
    let ended = read_list(source, "nodes", None, &mut |part| match part {
        Part::Element(node) => reading.take(&node),
        Part::Other(_) => {}
    });
    let mut file = reading.file;
    if let Err(cause) = ended {
        file.note_end(format_args!("{} nodes", reading.nodes), cause);
    }
    if reading.without_group > 0 {
        file.notes.push(format!("{} calls do not name their group", reading.without_group));
    }
    if reading.of_gloo > 0 {
        let note = "gloo's calls do not name their group, and the size of an all_gather is the input of one rank";
        file.notes.push(note.to_owned());
    }
    file.world = world(&reading.groups);
    file
}

impl ExecutionTraceReading {
    fn take(&mut self, node: &ExecutionTraceNode) {
        self.nodes += 1;
        if node.name == EXECUTION_TRACE_GROUPS {
            self.groups = execution_trace_groups(node.tensors("input", "values"));
        } else if node.name == CALL {
            self.take_call(node);
        } else if node.name.starts_with(GLOO) {
            self.take_gloo_call(node);
        }
    }

    /// gloo's calls have the shape of the first tensor, which is the input of a rank.
    fn take_gloo_call(&mut self, node: &ExecutionTraceNode) {
        let call = self.file.call_by_shape(&node.name, node.tensors("input", "shapes"), node.tensors("input", "types"));
        self.of_gloo += u64::from(call.is_some());
        self.file.calls.extend(call);
    }

    fn take_call(&mut self, node: &ExecutionTraceNode) {
        let described = node.by_attributes(&self.groups).or_else(|| node.by_inputs(&self.groups));
        let Some(Described { name, element, elements, group, elements_to_each }) = described else {
            self.file.skip_unknown("a record_param_comms without a name");
            return;
        };
        let Some(kind) = self.file.known_kind(&name) else { return };
        let Some(call) = self.file.sized(kind, element, elements, &format!("{name} of unknown type")) else { return };
        self.without_group += u64::from(group.is_none());
        let group = self.file.group(group.unwrap_or_default());
        let detail = CallDetail { elements_to_each, ..CallDetail::default() };
        self.file.calls.push(TracedCall { group, detail, ..call });
    }
}

impl ExecutionTraceNode {
    /// The `values`, `shapes` or `types` of its `input` or `output`, which schemas before 1.0.2 have next to each other.
    fn tensors(&self, of: &str, part: &str) -> &Value {
        let tensors = self.other.get(&format!("{of}s"));
        let older = if part == "values" { tensors } else { self.other.get(&format!("{of}_{part}")) };
        tensors.and_then(|tensors| tensors.get(part)).or(older).unwrap_or(&Value::Null)
    }

    fn attribute(&self, name: &str) -> Option<&Value> {
        self.attrs.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.value)
    }

    fn by_attributes(&self, groups: &[TorchGroup]) -> Option<Described> {
        let text = |name| self.attribute(name).and_then(Value::as_str);
        let number = |name| self.attribute(name).and_then(Value::as_u64);
        let name = text("collective_name")?.to_owned();
        let group = text("pg_name").map(|group| match groups.iter().find(|known| known.pg_name == group) {
            Some(known) => known.traced(),
            None => {
                let size = number("pg_size").and_then(|size| u32::try_from(size).ok());
                TracedGroup { name: group.to_owned(), size, ranks: None }
            }
        });
        let sent = number("in_msg_nelems").unwrap_or(0);
        Some(Described {
            name,
            element: text("dtype").and_then(element_of_torch),
            elements: Elements { sent, received: number("out_msg_nelems").unwrap_or(0) },
            group,
            elements_to_each: text("in_split_size").and_then(|rows| elements_to_each(rows, sent)),
        })
    }

    /// The inputs are those of the macro `RECORD_PARAM_COMMS`: tensors, number of the call, handle of the group, rank, and the name.
    fn by_inputs(&self, groups: &[TorchGroup]) -> Option<Described> {
        let values = self.tensors("input", "values").as_array()?;
        let name = values.iter().filter_map(Value::as_str).find(|text| named(text) != Named::Unknown)?.to_owned();
        let is_of = |group: &&TorchGroup| {
            values.iter().filter_map(Value::as_u64).any(|number| group.backend_id.is_some_and(|id| id == number))
        };
        let [sent, received] = ["input", "output"].map(|of| elements_of_tensors(self, of));
        Some(Described {
            name,
            element: ["input", "output"].into_iter().find_map(|of| first_tensor_type(self.tensors(of, "types"))),
            elements: Elements { sent, received },
            group: groups.iter().find(is_of).map(TorchGroup::traced),
            elements_to_each: None,
        })
    }
}

/// The groups that the first node lists, as JSON within a text.
fn execution_trace_groups(values: &Value) -> Vec<TorchGroup> {
    let text = values.get(0).and_then(Value::as_str).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

fn first_tensor_type(types: &Value) -> Option<ElementType> {
    types.as_array()?.iter().filter_map(Value::as_str).find_map(element_of_tensor)
}

/// The elements of all tensors of a node; other values have no tensor type.
fn elements_of_tensors(node: &ExecutionTraceNode, of: &str) -> u64 {
    let [shapes, types] = ["shapes", "types"].map(|part| node.tensors(of, part).as_array());
    let Some((shapes, types)) = shapes.zip(types) else { return 0 };
    let is_tensor = |of: &Value| of.as_str().is_some_and(|text| text.contains("Tensor("));
    let tensors = shapes.iter().zip(types).filter(|(_, of)| is_tensor(of));
    tensors.map(|(shape, _)| elements_of_shape(shape)).fold(0, u64::saturating_add)
}

/// The elements of `[2, 3]`, or of all tensors in a list of shapes.
fn elements_of_shape(shape: &Value) -> u64 {
    let Some(parts) = shape.as_array() else { return 0 };
    match parts.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
        Some(dimensions) => dimensions.into_iter().fold(1, u64::saturating_mul),
        None => parts.iter().map(elements_of_shape).fold(0, u64::saturating_add),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> Attribute {
        Attribute { name: name.to_owned(), string: Some(value.to_owned()), ..Attribute::default() }
    }

    fn number(name: &str, value: i64) -> Attribute {
        Attribute { name: name.to_owned(), int64: Some(value), ..Attribute::default() }
    }

    fn trace() -> Vec<u8> {
        let groups =
            r#"['[{"pg_name": "0", "pg_size": 4, "ranks": []}, {"pg_name": "3", "pg_size": 2, "ranks": [1, 3]}]']"#;
        let inputs = |values: &str, types: &str| Some(Tensors { values: values.to_owned(), types: types.to_owned() });
        let nodes = [
            Node {
                name: "## process_group:init ##".to_owned(),
                kind: METADATA,
                inputs: inputs(groups, "['String']"),
                ..Node::default()
            },
            Node {
                name: "ncclDevKernel_AllGather".to_owned(),
                kind: COLLECTIVE,
                start_time_micros: 11,
                duration_micros: 7,
                inputs: inputs("", "['Tensor(c10::BFloat16)']"),
                attr: vec![number("comm_type", 2), number("comm_size", 64), text("pg_name", "3")],
            },
            Node { name: "fancy".to_owned(), kind: COLLECTIVE, attr: vec![number("comm_type", 77)], ..Node::default() },
        ];
        let mut bytes = Metadata { version: "0.0.4".to_owned(), attr: Vec::new() }.encode_length_delimited_to_vec();
        nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
        bytes
    }

    #[test]
    fn a_call_has_size_time_and_group_and_an_unknown_one_is_said() {
        let bytes = trace();
        assert!(is_chakra(&bytes));
        let file = read(bytes.as_slice());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!((call.bytes_total.0, call.duration), (128, Some(Seconds(7e-6))));
        assert_eq!(call.detail.begin_nanoseconds, Some(11_000));
        assert_eq!(file.groups[call.group].ranks, Some(vec![1, 3]));
        assert_eq!((file.world, file.unknown.get("fancy")), (Some(4), Some(&1)));
        assert!(file.notes.is_empty(), "{:?}", file.notes);
    }

    #[test]
    fn a_cut_is_said_and_other_bytes_are_no_trace() {
        let bytes = trace();
        let file = read(&bytes[..bytes.len() - 3]);
        assert_eq!(file.calls.len(), 1);
        assert!(file.notes[0].contains("after 2 nodes"), "{:?}", file.notes);
        // A length that no file can have.
        let file = read([&bytes[..], &[0xff; 8], &[0x7f]].concat().as_slice());
        assert!(file.notes[0].contains("incomplete"), "{:?}", file.notes);
        for other in [&b"# a suite"[..], b"", b"\x00", b"\x1f\x8b\x08\x00", b"hello world, this is a text"] {
            assert!(!is_chakra(other), "{other:?}");
        }
    }

    const GROUP: &str = r###"{"name": "## process_group:init ##", "inputs": {"values": [
        "[{\"pg_name\": \"0\", \"pg_size\": 4, \"ranks\": []}, {\"pg_name\": \"3\", \"pg_size\": 2, \"ranks\": [1, 3]}]"], "shapes": [[]], "types": ["String"]}}"###;

    const CALL: &str = r#"{"name": "record_param_comms", "inputs": {"values": [], "shapes": [], "types": []}, "attrs": [
        {"name": "collective_name", "type": "string", "value": "_allgather_base"},
        {"name": "dtype", "type": "string", "value": "BFloat16"}, {"name": "in_msg_nelems", "type": "uint64", "value": 64},
        {"name": "out_msg_nelems", "type": "uint64", "value": 128}, {"name": "pg_name", "type": "string", "value": "3"}]}"#;

    #[test]
    fn a_call_has_the_sizes_and_the_group_of_its_attributes() {
        let text =
            format!(r#"{{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{GROUP}, {CALL}], "finish_ts": 1}}"#);
        let file = read_execution_trace(text.as_bytes());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!((call.bytes_total.0, call.element), (256, Some(ElementType::Bfloat16)));
        assert_eq!(file.groups[call.group].ranks, Some(vec![1, 3]));
        assert_eq!(file.world, Some(4));
    }

    #[test]
    fn calls_of_gloo_have_the_size_of_their_first_tensor_and_no_group() {
        // As PyTorch 2.15 writes them.
        let calls = r#"{"name": "c10d::allreduce_", "inputs": {"values": [], "shapes": [], "types": []}},
            {"name": "gloo:all_reduce", "inputs": {"values": [[251, 156, 0, 525568, 4, "cpu"]], "shapes": [[525568]], "types": ["Tensor(float)"]}},
            {"name": "gloo:fancy", "inputs": {"values": [], "shapes": [[8]], "types": ["Tensor(float)"]}},
            {"name": "gloo:barrier", "inputs": {"values": [], "shapes": [], "types": []}}"#;
        let file =
            read_execution_trace(format!(r#"{{"schema": "1.1.1-chakra.0.0.4", "nodes": [{calls}]}}"#).as_bytes());
        let sizes: Vec<_> = file.calls.iter().map(|call| (call.kind.name(), call.bytes_total.0)).collect();
        assert_eq!(sizes, [("all_reduce", 4 * 525_568), ("barrier", 0)]);
        assert_eq!(file.unknown.get("gloo:fancy"), Some(&1));
        assert!(file.notes[0].contains("gloo's calls do not name their group"), "{:?}", file.notes);
    }

    #[test]
    fn what_came_before_the_cut_is_used() {
        let text = format!(r#"{{"schema": "1.1.1-chakra.0.0.4", "nodes": [{GROUP}, {CALL}, {{"na"#);
        let file = read_execution_trace(text.as_bytes());
        assert_eq!(file.calls.len(), 1);
        assert!(file.notes[0].contains("truncated or damaged after 2 nodes"), "{:?}", file.notes);
    }

    #[test]
    fn shapes_and_types_next_to_the_values_are_those_of_older_schemas() {
        let node = r#"{"name": "record_param_comms", "inputs": [[71, 71, 0, 1048576, 4, "cuda:0"], 7, 9, 0, "allreduce"], "input_shapes":
            [[1048576], [], [], [], []], "input_types": ["Tensor(float)", "Int", "Int", "Int", "String"], "outputs": [[]]}"#;
        let file = read_execution_trace(format!("{{\"schema\": \"1.0.1\", \"nodes\": [{node}]}}").as_bytes());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!(
            (call.kind.name(), call.element, call.bytes_total),
            ("all_reduce", Some(ElementType::Float32), Bytes(4 << 20))
        );
    }

    #[test]
    fn shapes_of_lists_of_tensors_are_added_up() {
        for (shape, elements) in [("[2, 3]", 6), ("[[2], [3]]", 5), ("[[[1], [1]]]", 2), ("[]", 1), ("7", 0)] {
            assert_eq!(elements_of_shape(&serde_json::from_str(shape).unwrap()), elements, "{shape}");
        }
    }
}
