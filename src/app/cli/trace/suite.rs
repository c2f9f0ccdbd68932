//! A suite that measures the calls of a job.

use commgauge_analysis::trace::{CallKind, CountedCall, GroupPlace};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{AXES, Suite};
use commgauge_model::layout::{Axis, Layout};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A suite as text.
pub(super) struct WrittenSuite {
    pub text: String,
    /// Calls that it measures.
    pub cases: usize,
    /// Calls that it does not, and why.
    pub left_out: Vec<String>,
}

/// Sizes by axis, call and type: one sweep each.
type Sweeps = BTreeMap<(Axis, Collective, Option<ElementType>), Vec<u64>>;

/// The suite of these calls on this layout.
///
/// # Errors
/// If none of them can be measured.
pub(super) fn suite(calls: &[CountedCall], layout: Option<&Layout>, files: usize) -> Result<WrittenSuite> {
    if layout.is_some_and(Layout::is_placed_by_hand) {
        return Err(Error::usage("-o: a suite holds no --rank-list; accepted: ranks in the order of --order"));
    }
    let mut left_out = Vec::new();
    let mut sweeps: Sweeps = BTreeMap::new();
    for call in calls {
        match measured(call) {
            Ok((axis, collective)) => {
                let sizes = sweeps.entry((axis, collective, call.element)).or_default();
                if call.bytes_total.0 > 0 {
                    sizes.push(call.bytes_total.0);
                }
            }
            Err(why) => left_out.push(format!("{} of {} on {}: {why}", call.kind, call.bytes_total, call.place.name())),
        }
    }
    if sweeps.is_empty() {
        let why = left_out.first().map_or("", String::as_str);
        return Err(Error::usage(format!("-o: none of the calls can be measured, such as {why}")));
    }
    let cases = sweeps.values().map(|sizes| sizes.len().max(1)).sum();
    let text = text(&sweeps, layout, files);
    // Whoever writes a suite that cannot be read says so at once.
    Suite::parse(Path::new("suite of the trace"), &text)?;
    Ok(WrittenSuite { text, cases, left_out })
}

fn measured(call: &CountedCall) -> std::result::Result<(Axis, Collective), String> {
    if call.element.is_none() && call.kind != CallKind::Collective(Collective::Barrier) {
        return Err("the trace does not say the type of its elements (--element-type)".to_owned());
    }
    let GroupPlace::Axis(axis) = &call.place else {
        return match call.place.name() == Axis::World.name() {
            true => collective_of(call.kind).map(|collective| (Axis::World, collective)),
            false => Err("its group is of no axis of the layout (--tp, --dp, ...)".to_owned()),
        };
    };
    if !AXES.contains(&axis.name()) {
        return Err("sweeps have no such axis".to_owned());
    }
    collective_of(call.kind).map(|collective| (*axis, collective))
}

/// Messages are measured along the chain of their group, as a pipeline sends them.
fn collective_of(kind: CallKind) -> std::result::Result<Collective, String> {
    match kind {
        CallKind::Collective(collective) => Ok(collective),
        CallKind::Send => Ok(Collective::SendRecvChain),
        CallKind::Receive => Err("it is measured with the send".to_owned()),
    }
}

fn text(sweeps: &Sweeps, layout: Option<&Layout>, files: usize) -> String {
    let mut text = format!(
        "# The calls of a job, from {files} files of its trace, each of its own size on the groups of its axis.\n\
         name = \"trace\"\ndescription = \"The calls of a job\"\n\n[measure]\nprecision = 0.03\ncase_budget = \"500ms\"\nreplicates = 3\n"
    );
    if let Some(layout) = layout {
        let degrees = &layout.degrees;
        let _ = write!(text, "\n[[layout]]\n");
        for (name, degree) in
            [("tp", degrees.tp), ("cp", degrees.cp), ("dp", degrees.dp), ("pp", degrees.pp), ("ep", degrees.ep)]
        {
            if degree > 1 || name == "dp" {
                let _ = writeln!(text, "{name} = {degree}");
            }
        }
        let copies = layout.group_size(Axis::DpReplicate);
        if copies > 1 {
            let _ = writeln!(text, "replicas_of_shards = {copies}");
        }
        let _ = writeln!(text, "order = \"{}\"", layout.order_name());
    }
    for ((axis, collective, element), sizes) in sweeps {
        let _ = write!(text, "\n[[sweep]]\naxis = \"{axis}\"\ncollectives = \"{collective}\"\n");
        if let Some(element) = element {
            let _ = writeln!(text, "element_types = \"{element}\"");
        }
        if !sizes.is_empty() {
            let sizes: Vec<String> = sizes.iter().map(|size| format!("\"{size}B\"")).collect();
            let _ = writeln!(text, "bytes = [{}]", sizes.join(", "));
        }
        // The trace does not say where results go.
        if collective.placements().len() > 1 {
            let _ = writeln!(text, "placements = \"out-of-place\"");
        }
    }
    text
}
