//! The result of a rehearsal, as a document and as text.

use crate::report::document::wrapped;
use crate::report::{SuspectsFormat, suspects_text};
use commgauge_analysis::verdict::locate::{SuspectKind, Suspects};
use commgauge_base::units::{Seconds, counted, three_digits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The value of `format` in every such document.
pub(super) const FORMAT: &str = "commgauge-rehearsal";
/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// A rehearsed run: what it would take, cover and find.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RehearsalDocument {
    /// Always `commgauge-rehearsal`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Always true: nothing was measured.
    pub synthetic: bool,
    /// Name of the suite.
    pub suite: String,
    /// Name of the machine.
    pub machine: String,
    /// Nodes of the machine file.
    pub nodes: u32,
    /// Hosts, which suspects and faults count: the nodes, but where several hosts make one.
    #[serde(default)]
    pub hosts: u32,
    /// Ranks of all nodes.
    pub ranks: u32,
    /// What was broken on purpose, in the words of `--fault`.
    pub faults: Vec<String>,
    /// Cases of the plan.
    pub cases: u64,
    /// Rounds of disjoint pairs among them.
    pub pair_rounds: u64,
    /// Replicates of each case.
    pub replicates: u32,
    /// About what the run takes where every case stops at its fewest samples.
    pub seconds_least: f64,
    /// About what it takes where every case spends its whole budget.
    pub seconds_most: f64,
    /// What `commgauge locate` says of one rehearsal.
    pub suspects: Suspects,
    /// What the machine file expects and what became of it; absent where it expects nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateOutlook>,
    /// How often the faults are found, where several seeds were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
}

/// What a gate would say. No synthetic row ever passes, so those that would are counted apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GateOutlook {
    /// Rows of the plan.
    pub rows: u32,
    /// Rows that something is expected of.
    pub rows_judged: u32,
    /// Those of them that fail.
    pub rows_failed: u32,
    /// Those of these that fail with nothing broken too, as where times scatter by more than the file leaves room for.
    #[serde(default)]
    pub rows_failed_healthy: u32,
    /// Those of them whose median meets what is expected.
    pub rows_that_would_meet: u32,
}

/// How often faults are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Power {
    /// Rehearsals with seeds of their own.
    pub seeds: u64,
    /// Whom the faults should have suspected.
    pub planted: Vec<SuspectKind>,
    /// Rehearsals that named all of them, class and name, and suspected nobody else.
    pub right: u64,
    /// The 95 % interval of that share.
    pub right_share_low: f64,
    /// See `right_share_low`.
    pub right_share_high: f64,
    /// Rehearsals that named all of them.
    pub all_named: u64,
    /// Rehearsals that suspected somebody else.
    pub others_accused: u64,
}

/// The JSON Schema of the document.
pub(crate) fn schema() -> Value {
    let schema = schemars::schema_for!(RehearsalDocument).to_value();
    crate::cli::published::published(schema, FORMAT, VERSION, "A rehearsal of commgauge")
}

/// The document as text.
pub(super) fn text(document: &RehearsalDocument, width: u16) -> String {
    let mut out = wrapped("SYNTHETIC: a rehearsal; no data moved and no real time passed", width);
    let mut sentences = vec![
        format!(
            "suite {} on {}{}, {} ranks, of {}",
            document.suite,
            counted(document.nodes as usize, "node"),
            if document.hosts == document.nodes { String::new() } else { format!(" of {} hosts", document.hosts) },
            document.ranks,
            document.machine
        ),
        format!(
            "broken on purpose: {}",
            if document.faults.is_empty() { "nothing".to_owned() } else { document.faults.join(", ") }
        ),
        format!(
            "it would take from {} (each case stops at its fewest samples) to {} (each spends its budget): {} cases, of pairs \
             {} rounds, {} replicates",
            Seconds(document.seconds_least),
            Seconds(document.seconds_most),
            document.cases,
            document.pair_rounds,
            document.replicates
        ),
    ];
    if document.hosts > document.nodes && document.nodes > 1 {
        sentences.push(
            "the thresholds of a node of several hosts are about one such node: for a verdict rehearse and qualify node by node (--nodes 1)"
                .to_owned(),
        );
    }
    sentences.extend(document.gate.as_ref().map(gate_text));
    sentences.extend(document.power.as_ref().map(power_text));
    for sentence in sentences {
        out += &wrapped(&sentence, width);
    }
    // Formatting a table cannot fail.
    out + "\n" + &suspects_text(&document.suspects, SuspectsFormat::Table, width).unwrap_or_default()
}

fn gate_text(gate: &GateOutlook) -> String {
    let mut text = format!(
        "gate: of {} rows something is expected of {}; {} fail, {} would meet it (nothing synthetic ever passes)",
        gate.rows, gate.rows_judged, gate.rows_failed, gate.rows_that_would_meet
    );
    if gate.rows_failed_healthy > 0 {
        text += &format!("; {} fail with nothing broken too", gate.rows_failed_healthy);
    }
    text
}

fn power_text(power: &Power) -> String {
    let share = |share: f64| three_digits(share * 100.0);
    let what = if power.planted.is_empty() {
        "there was no suspect"
    } else {
        "all planted faults were named and nothing else"
    };
    format!(
        "detection power: {what} in {} of {} rehearsals with seeds of their own (95 % interval {} to {} %); all named in {}, \
         others suspected in {}",
        power.right,
        power.seeds,
        share(power.right_share_low),
        share(power.right_share_high),
        power.all_named,
        power.others_accused
    )
}
