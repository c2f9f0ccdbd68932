//! Execution traces of PyTorch (`ExecutionTraceObserver`, torch/csrc/profiler/standalone/execution_trace_observer.cpp), from which
//! Chakra's traces are made. A call is a node `record_param_comms`: since PyTorch 2.4 its attributes say collective, sizes and group,
//! before that its inputs do. Times are not in it.

use super::json_list::{self, Part};
use super::torch_group::{TorchGroup, world};
use crate::trace::call::{CallKind, Elements, Named, element_of_tensor, element_of_torch, named};
use crate::trace::trace_file::{CallDetail, FileCall, FileTrace, TracedGroup, elements_to_each};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;
use serde::Deserialize;
use serde_json::Value;
use std::io::Read;

const CALL: &str = "record_param_comms";
const GLOO: &str = "gloo:";
const GROUPS: &str = "## process_group:init ##";

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    name: String,
    #[serde(default)]
    inputs: Tensors,
    #[serde(default)]
    outputs: Tensors,
    #[serde(default)]
    attrs: Vec<Attribute>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tensors {
    values: Value,
    shapes: Value,
    types: Value,
}

#[derive(Debug, Deserialize)]
struct Attribute {
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
    /// Of an uneven all_to_all.
    elements_to_each: Option<Vec<u64>>,
}

#[derive(Default)]
struct Reading {
    file: FileTrace,
    groups: Vec<TorchGroup>,
    nodes: u64,
    without_group: u64,
    of_gloo: u64,
}

/// Reads a trace. Where it is cut off or damaged, with a note, up to there.
pub(super) fn read(source: impl Read) -> FileTrace {
    let mut reading = Reading::default();
    let ended = json_list::read(source, "nodes", None, &mut |part| match part {
        Part::Element(node) => reading.take(&node),
        Part::Beside(_) => {}
    });
    let mut file = reading.file;
    if let Err(cause) = ended {
        let nodes = reading.nodes;
        file.notes.push(format!("the file is cut off or damaged after {nodes} nodes, which are used: {cause}"));
    }
    if reading.without_group > 0 {
        file.notes.push(format!("{} calls do not say in which group they are", reading.without_group));
    }
    if reading.of_gloo > 0 {
        file.notes.push(
            "gloo's calls do not say in which group they are, and the size of an all_gather is that of what one rank passes in"
                .to_owned(),
        );
    }
    file.world = world(&reading.groups);
    file
}

impl Reading {
    fn take(&mut self, node: &Node) {
        self.nodes += 1;
        if node.name == GROUPS {
            self.groups = groups(&node.inputs.values);
        } else if node.name == CALL {
            self.take_call(node);
        } else if node.name.starts_with(GLOO) {
            self.take_gloo_call(node);
        }
    }

    /// gloo's calls have the shape of the first tensor, which is what a rank passes in.
    fn take_gloo_call(&mut self, node: &Node) {
        let kind = match named(&node.name) {
            Named::Call(kind) => kind,
            Named::NoCall => return,
            Named::Unknown => return self.file.skip_unknown(&node.name),
        };
        let dimensions = node.inputs.shapes.get(0).and_then(Value::as_array);
        let elements = dimensions.map_or(0, |all| all.iter().filter_map(Value::as_u64).fold(1, u64::saturating_mul));
        let element = node.inputs.types.get(0).and_then(Value::as_str).and_then(element_of_tensor);
        let is_barrier = kind == CallKind::Collective(Collective::Barrier);
        if element.is_none() && !is_barrier {
            return self.file.skip_unknown(&format!("{} without a type", node.name));
        }
        self.of_gloo += 1;
        let group = self.file.group(TracedGroup { name: String::new(), size: None, ranks: None });
        let bytes_total = Bytes(element.map_or(0, |element| elements.saturating_mul(element.size())));
        let detail = CallDetail::default();
        self.file.calls.push(FileCall { rank: None, kind, element, bytes_total, group, duration: None, detail });
    }

    fn take_call(&mut self, node: &Node) {
        let described = node.by_attributes(&self.groups).or_else(|| node.by_inputs(&self.groups));
        let Some(Described { name, element, elements, group, elements_to_each }) = described else {
            self.file.skip_unknown("a record_param_comms without a name");
            return;
        };
        let kind = match named(&name) {
            Named::Call(kind) => kind,
            Named::NoCall => return,
            Named::Unknown => return self.file.skip_unknown(&name),
        };
        let is_barrier = kind == CallKind::Collective(Collective::Barrier);
        let Some((element, bytes_total)) = element.and_then(|of| Some((of, elements.bytes_total(kind, of)?))) else {
            return self.file.skip_unknown(&format!("{name} of an unknown type"));
        };
        self.without_group += u64::from(group.is_none());
        let nowhere = TracedGroup { name: String::new(), size: None, ranks: None };
        let group = self.file.group(group.unwrap_or(nowhere));
        let element = (!is_barrier).then_some(element);
        let detail = CallDetail { elements_to_each, ..CallDetail::default() };
        self.file.calls.push(FileCall { rank: None, kind, element, bytes_total, group, duration: None, detail });
    }
}

impl Node {
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
        let values = self.inputs.values.as_array()?;
        let name = values.iter().filter_map(Value::as_str).find(|text| named(text) != Named::Unknown)?.to_owned();
        let is_of = |group: &&TorchGroup| {
            values.iter().filter_map(Value::as_u64).any(|number| group.backend_id.is_some_and(|id| id == number))
        };
        let types = [&self.inputs.types, &self.outputs.types];
        Some(Described {
            name,
            element: types.into_iter().find_map(first_tensor_type),
            elements: Elements {
                sent: elements_of_tensors(&self.inputs),
                received: elements_of_tensors(&self.outputs),
            },
            group: groups.iter().find(is_of).map(TorchGroup::traced),
            elements_to_each: None,
        })
    }
}

/// The groups that the first node lists, as JSON within a text.
fn groups(values: &Value) -> Vec<TorchGroup> {
    let text = values.get(0).and_then(Value::as_str).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

fn first_tensor_type(types: &Value) -> Option<ElementType> {
    types.as_array()?.iter().filter_map(Value::as_str).find_map(element_of_tensor)
}

/// The elements of all tensors of a node, whose other values have no type of a tensor.
fn elements_of_tensors(of: &Tensors) -> u64 {
    let (Some(shapes), Some(types)) = (of.shapes.as_array(), of.types.as_array()) else { return 0 };
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
        let file = read(text.as_bytes());
        let [call] = &file.calls[..] else { panic!("{file:?}") };
        assert_eq!((call.bytes_total.0, call.element), (256, Some(ElementType::Bfloat16)));
        assert_eq!(file.groups[call.group].ranks, Some(vec![1, 3]));
        assert_eq!(file.world, Some(4));
    }

    #[test]
    fn calls_of_gloo_have_the_size_of_their_first_tensor_and_no_group() {
        // As PyTorch 2.15 leaves them.
        let calls = r#"{"name": "c10d::allreduce_", "inputs": {"values": [], "shapes": [], "types": []}},
            {"name": "gloo:all_reduce", "inputs": {"values": [[251, 156, 0, 525568, 4, "cpu"]], "shapes": [[525568]], "types": ["Tensor(float)"]}},
            {"name": "gloo:fancy", "inputs": {"values": [], "shapes": [[8]], "types": ["Tensor(float)"]}},
            {"name": "gloo:barrier", "inputs": {"values": [], "shapes": [], "types": []}}"#;
        let file = read(format!(r#"{{"schema": "1.1.1-chakra.0.0.4", "nodes": [{calls}]}}"#).as_bytes());
        let sizes: Vec<_> = file.calls.iter().map(|call| (call.kind.name(), call.bytes_total.0)).collect();
        assert_eq!(sizes, [("all_reduce", 4 * 525_568), ("barrier", 0)]);
        assert_eq!(file.unknown.get("gloo:fancy"), Some(&1));
        assert!(file.notes[0].contains("gloo's calls do not say in which group they are"), "{:?}", file.notes);
    }

    #[test]
    fn what_came_before_the_cut_is_used() {
        let text = format!(r#"{{"schema": "1.1.1-chakra.0.0.4", "nodes": [{GROUP}, {CALL}, {{"na"#);
        let file = read(text.as_bytes());
        assert_eq!(file.calls.len(), 1);
        assert!(file.notes[0].contains("cut off or damaged after 2 nodes"), "{:?}", file.notes);
    }

    #[test]
    fn shapes_of_lists_of_tensors_are_added_up() {
        for (shape, elements) in [("[2, 3]", 6), ("[[2], [3]]", 5), ("[[[1], [1]]]", 2), ("[]", 1), ("7", 0)] {
            assert_eq!(elements_of_shape(&serde_json::from_str(shape).unwrap()), elements, "{shape}");
        }
    }
}
