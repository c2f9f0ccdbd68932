//! Suspects as text: the table at two widths, Markdown, and hostile names.

use super::*;
use commgauge_analysis::verdict::locate::{Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, SuspectKind};
use commgauge_analysis::verdict::{Run, Trouble};

fn suspects(host: &str) -> Suspects {
    let suspect = |culprit: SuspectKind, name: String, intermittent| Suspect {
        intermittent,
        slower_by: Some(0.571),
        late_seconds: None,
        strength: 9.04,
        evidence: vec![format!("one way: {name} takes 57 % longer than usual, with 63 of 63 other nodes")],
        action: culprit.action().to_owned(),
        next_step: format!("commgauge run qualify -n 32 --hosts {host}:8"),
        name,
        culprit,
    };
    let late = Suspect {
        slower_by: None,
        late_seconds: Some(2e-3),
        ..suspect(SuspectKind::LateRank { rank: 5, node: 0 }, "rank 5 on node 0 (a)".to_owned(), false)
    };
    Suspects {
        format: SUSPECTS_FORMAT.to_owned(),
        version: SUSPECTS_VERSION,
        exit_code: 1,
        answer: format!("2 suspects, first of all node 17 ({host})"),
        synthetic: true,
        runs: vec![Run {
            role: "looked at".to_owned(),
            path: "q.jsonl".to_owned(),
            run_id: "run-1".to_owned(),
            started_at: "2026-01-01T00:00:00+00:00".to_owned(),
            suite: "qualify".to_owned(),
            backend: "mpi".to_owned(),
            library: "Open MPI 4.1.4".to_owned(),
            world_size: 512,
            synthetic: true,
            measured_by: None,
        }],
        unconfirmed: Vec::new(),
        slow_whiles: Vec::new(),
        examined: Examined {
            inside_pairs: 0,
            pairs_expected: false,
            nodes: 64,
            hosts: vec![host.to_owned()],
            local_ranks: 8,
            nodes_per_leaf: Some(8),
            nodes_per_rack: None,
            node_pairs: 2016,
            node_pairs_measured: 2010,
            nodes_measured_inside: 64,
            group_nodes: vec![2, 4, 8],
            isolated_cases: 1,
            replicates: 3,
        },
        suspects: vec![suspect(SuspectKind::Node { node: 17 }, format!("node 17 ({host})"), true), late],
        unseen: vec!["leaf switch".to_owned(), "late rank".to_owned()],
        cannot_tell: vec!["messages go there and back: sending and receiving cannot be distinguished".to_owned()],
        troubles: vec![Trouble { exit_code: 7, text: "6 of 2016 pairs of nodes were not measured".to_owned() }],
        rule: vec!["an outlier is above the median of its kind by more than scatter explains".to_owned()],
    }
}

#[test]
fn tables_for_two_widths_and_a_page() {
    for width in [80, 140] {
        let text = suspects_text(&suspects("node-0017"), SuspectsFormat::Table, width).unwrap();
        insta::assert_snapshot!(format!("suspects_{width}"), text);
    }
    insta::assert_snapshot!(
        "suspects_markdown",
        suspects_text(&suspects("node-0017"), SuspectsFormat::Markdown, 0).unwrap()
    );
}

#[test]
fn hostile_names_leave_no_control_character_and_no_markup() {
    let hostile = "<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}|a\nb";
    for format in [SuspectsFormat::Table, SuspectsFormat::Markdown, SuspectsFormat::Json] {
        let text = suspects_text(&suspects(hostile), format, 100).unwrap();
        let bad = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
        assert_eq!(bad, None, "{format:?}: {text}");
        assert!(format != SuspectsFormat::Markdown || !text.contains("<img"), "{text}");
    }
}
