//! All pairs of ranks: the matrix, the median of each locality, slow pairs, and averages of each host.
//!
//! Derived from the record alone. `slow` decides which pairs are slow; rendering is in the other modules.

pub(super) mod document;
mod view;

pub(super) use document::{document, localities, tables, text};
pub use view::{Measure, MemberKind, Pair, PairLocality, PairsView};

use commgauge_base::collective::Collective;
use commgauge_judge::verdict::locate::is_screening;
use commgauge_model::record::Record;
use commgauge_model::record::line::CaseFacts;
use commgauge_model::workload::Style;

impl PairsView {
    /// The pairs of a record; `None` where it has no round of pairs.
    pub fn new(record: &Record) -> Option<PairsView> {
        let rounds: Vec<&CaseFacts> = record.plan.cases.iter().filter(|facts| facts.style == Style::Pairs).collect();
        let ping_pongs = || rounds.iter().filter(|facts| facts.collective == Collective::PingPong);
        let latency_bytes = ping_pongs().map(|facts| facts.bytes_total).min()?;
        let bandwidth_bytes = rounds.iter().map(|facts| facts.bytes_total).max()?;
        let of_latency = || ping_pongs().filter(|facts| facts.bytes_total == latency_bytes);
        let found = view::gather(record, latency_bytes);
        let mut view = PairsView {
            ranks: found.ranks,
            rounds: of_latency().count(),
            pairs_at_once: rounds.iter().map(|facts| facts.groups).max().unwrap_or(0),
            pairs_planned: of_latency().map(|facts| u64::from(facts.groups)).sum(),
            screened: rounds.iter().any(|facts| is_screening(facts)),
            latency_bytes,
            bandwidth_bytes,
            pairs: found.pairs,
            middles: [[None; 3]; 2],
            compared: 0,
            slow: Vec::new(),
            hosts: Vec::new(),
            standings: Vec::new(),
        };
        view::compare_with_medians(&mut view);
        (view.compared, view.slow) = view::slow_pairs(&view);
        (view.hosts, view.standings) = view::standings(&view);
        Some(view)
    }

    /// The slow pairs and the rule, as sentences.
    pub fn findings(&self) -> Vec<String> {
        view::findings(self)
    }
}

#[cfg(test)]
pub(super) mod tests {
    // Golden reports of pairs in every format, and properties of any of them. The records are made here: on eight ranks of two
    // hosts one link is at a quarter, and a round of one measure has wrong data.
    use super::view::Standing;
    use super::*;
    use crate::report::report_tests::rendered;
    use crate::report::{Format, Paint};
    use commgauge_base::units::Bytes;
    use commgauge_model::layout::{Axis, Locality};
    use commgauge_model::record::Line;
    use commgauge_model::record::header::{DeviceFacts, DevicesLine};
    use commgauge_model::record::line::{CaseLine, EndStatus, Outcome, PairTimes, Plan, RankFacts, Samples};
    use commgauge_model::workload::rounds;

    const LATENCY_BYTES: u64 = 8;
    const BANDWIDTH_BYTES: u64 = 1 << 20;

    /// Nanoseconds of one message between two ranks by a measure.
    pub(in crate::report) type Time = fn(u32, u32, Measure) -> f64;

    /// A record of all pairs of `ranks` ranks with `per_host` on each host, measured in one replicate.
    pub(in crate::report) fn record(ranks: u32, per_host: u32, time: Time) -> Record {
        let sample = commgauge_model::record::testing::sample();
        let mut header = sample.header.clone();
        (header.world_size, header.settings.replicates, header.suite.name) = (ranks, 1, "pairs".to_owned());
        let facts = &sample.header.ranks[0];
        let place = |rank: u32| RankFacts {
            rank,
            ranks: 1,
            host: format!("node-{}", rank / per_host),
            node: rank / per_host,
            ..facts.clone()
        };
        header.ranks = (0..ranks).map(place).collect();
        let (mut cases, mut lines) = (Vec::new(), Vec::new());
        for (number, round) in rounds(ranks as usize).into_iter().enumerate() {
            let pairs: Vec<(u32, u32)> = round.iter().map(|[a, b]| (*a as u32, *b as u32)).collect();
            for measure in Measure::ALL {
                let facts = case_facts(&sample.plan.cases[0], measure, number, pairs.len() as u32);
                lines.push(case_line(&sample.cases[0], cases.len() as u32, &facts, &pairs, measure, time));
                cases.push(facts);
            }
        }
        let plan = Plan { case_lines: lines.len() as u64, cases, steps: Vec::new(), ..sample.plan };
        let mut all = vec![Line::Header(Box::new(header)), Line::Plan(plan)];
        all.extend(lines.into_iter().map(|line| Line::Case(Box::new(line))));
        let mut end = sample.end.unwrap();
        (end.status, end.exit_code, end.error) = (EndStatus::Complete, 0, None);
        all.push(Line::End(end));
        Record::from_lines(all).unwrap()
    }

    fn case_facts(like: &CaseFacts, measure: Measure, round: usize, groups: u32) -> CaseFacts {
        let (collective, bytes, messages) = match measure {
            Measure::Latency => (Collective::PingPong, LATENCY_BYTES, 2),
            Measure::OneWay => (Collective::PingPong, BANDWIDTH_BYTES, 2),
            Measure::BothWays => (Collective::Bidirectional, BANDWIDTH_BYTES, 1),
        };
        let locality = Locality { nodes_spanned: 2, ranks_per_node: 1, stride: 0, concurrent_groups_per_node: 4 };
        CaseFacts {
            name: format!("pair/round-{round}/{collective}/{bytes}"),
            style: Style::Pairs,
            axis: Axis::Pair,
            group_size: 2,
            groups,
            locality,
            collective,
            reduce_op: None,
            bytes_total: Bytes(bytes),
            bytes_accounted: Bytes(bytes),
            bytes_per_rank: Bytes(bytes),
            transfers_per_call: messages,
            bus_factor: Some(1.0),
            bound_bytes_per_second: None,
            uses: Vec::new(),
            ..like.clone()
        }
    }

    fn case_line(
        like: &CaseLine,
        case: u32,
        facts: &CaseFacts,
        pairs: &[(u32, u32)],
        measure: Measure,
        time: Time,
    ) -> CaseLine {
        let calls = 10.0 * f64::from(facts.transfers_per_call);
        let times: Vec<u64> = pairs.iter().map(|(a, b)| (time(*a, *b, measure) * calls) as u64).collect();
        let slowest = times.iter().copied().max().unwrap();
        let samples =
            Samples { slowest_nanoseconds: vec![slowest; 12], slowest_rank: vec![0; 12], ..Samples::default() };
        CaseLine {
            case,
            name: facts.name.as_str().into(),
            replicate: 0,
            replaces: Vec::new(),
            outcome: Outcome::Measured { verified: true },
            calls_per_sample: 10,
            samples,
            histograms: Vec::new(),
            warnings: Vec::new(),
            pairs: Some(Box::new(PairTimes {
                rank_a: pairs.iter().map(|pair| pair.0).collect(),
                rank_b: pairs.iter().map(|pair| pair.1).collect(),
                samples: vec![12; pairs.len()],
                p10_nanoseconds: times.iter().map(|time| time - time / 50).collect(),
                p90_nanoseconds: times.iter().map(|time| time + time / 50).collect(),
                median_nanoseconds: times,
            })),
            ..like.clone()
        }
    }

    /// A few per cent that look like chance and are the same every time.
    fn jitter(a: u32, b: u32) -> f64 {
        1.0 + f64::from((a * 7919 + b * 104_729) % 61) / 1000.0
    }

    pub(in crate::report) fn healthy(a: u32, b: u32, measure: Measure) -> f64 {
        let time = match (measure, a / 4 == b / 4) {
            (Measure::Latency, true) => 400.0,
            (Measure::Latency, false) => 9_000.0,
            (_, true) => 100_000.0,
            (_, false) => 1_000_000.0,
        };
        time * jitter(a, b)
    }

    /// The link between ranks 1 and 6 has a quarter of its rate.
    pub(in crate::report) fn one_slow(a: u32, b: u32, measure: Measure) -> f64 {
        healthy(a, b, measure) * if (a, b) == (1, 6) && measure != Measure::Latency { 4.0 } else { 1.0 }
    }

    /// All of rank 2 is three times as slow.
    fn slow_rank(a: u32, b: u32, measure: Measure) -> f64 {
        healthy(a, b, measure) * if a == 2 || b == 2 { 3.0 } else { 1.0 }
    }

    /// As `one_slow`, with wrong data in a round of the latency.
    fn sample() -> Record {
        let mut record = record(8, 4, one_slow);
        let line = &mut record.cases[6];
        line.outcome = Outcome::corrupt("after", 3, 5, ["1", "2"], 1);
        record
    }

    #[test]
    fn every_format_of_pairs_is_as_published() {
        let record = sample();
        for width in [80, 140] {
            insta::assert_snapshot!(format!("table_{width}"), rendered(&record, Format::Table, width, Paint::Plain));
        }
        insta::assert_snapshot!(
            "table_80_colored",
            rendered(&record, Format::Table, 80, Paint::Colors).replace('\x1b', "ESC")
        );
        insta::assert_snapshot!("csv", rendered(&record, Format::Csv, 80, Paint::Plain));
        insta::assert_snapshot!("markdown", rendered(&record, Format::Markdown, 80, Paint::Plain));
        let json: serde_json::Value = serde_json::from_str(&rendered(&record, Format::Json, 80, Paint::Plain)).unwrap();
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&json["pairs"]).unwrap());
    }

    #[test]
    fn the_matrix_fits_the_width_by_switching_to_shades_and_then_to_hosts() {
        for (ranks, width, expected) in [
            (16, 80u16, "node-0  0    \\"),
            (64, 80, "node-0   0 \\"),
            (64, 140, "node-0   0  \\"),
            (72, 140, "72 ranks do not fit, so rows and columns are hosts"),
            (30, 60, "node-0  0 \\"),
        ] {
            let text = rendered(&record(ranks, 4, one_slow), Format::Table, width, Paint::Plain);
            assert!(text.contains(expected), "{ranks} ranks in {width}:\n{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "wider than {width}: {line}");
            }
        }
        insta::assert_snapshot!(
            "table_of_64_ranks",
            rendered(&record(64, 8, one_slow), Format::Table, 80, Paint::Plain)
        );
        insta::assert_snapshot!(
            "table_of_72_ranks",
            rendered(&record(72, 4, one_slow), Format::Table, 80, Paint::Plain)
        );
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let plain = rendered(&sample(), Format::Table, 100, Paint::Plain);
        assert!(!plain.contains('\x1b'));
        let mut colored = rendered(&sample(), Format::Table, 100, Paint::Colors);
        assert!(colored.contains("\x1b[48;5;124"), "a cell below 30 % is red");
        while let Some(start) = colored.find('\x1b') {
            let end = start + colored[start..].find('m').unwrap();
            colored.replace_range(start..=end, "");
        }
        let matrix =
            |text: &str| text[text.find("latency, 8 B").unwrap()..text.find("Latency: one way").unwrap()].to_owned();
        assert_eq!(matrix(&plain), matrix(&colored));
    }

    #[test]
    fn shares_refer_to_the_median_of_the_same_locality() {
        let view = PairsView::new(&record(8, 4, healthy)).unwrap();
        assert_eq!((view.pairs.len(), view.rounds, view.pairs_at_once, view.pairs_planned), (28, 7, 4, 28));
        assert_eq!(view.complete_pairs(), 28);
        for locality in PairLocality::ALL {
            let pairs = view.middles[locality as usize][0].unwrap().pairs;
            assert_eq!(pairs, if locality == PairLocality::SameHost { 12 } else { 16 });
        }
        assert!(view.slow.is_empty() && view.compared == 3 * 28, "{:?}", view.slow);
        for value in view.pairs.iter().flat_map(|pair| pair.values).flatten() {
            assert!((94.0..106.5).contains(&value.percent), "{value:?}");
        }
        let one_way = view.middles[PairLocality::DifferentHosts as usize][Measure::OneWay as usize].unwrap();
        assert!((0.98e9..1.05e9).contains(&one_way.median), "1 MiB in about 1.03 ms: {one_way:?}");
    }

    #[test]
    fn a_link_at_a_quarter_is_the_only_pair_that_is_named() {
        let view = PairsView::new(&record(8, 4, one_slow)).unwrap();
        let named: Vec<(u32, u32, Measure)> = view
            .slow
            .iter()
            .map(|slow| {
                (view.ranks[view.pairs[slow.pair].a].rank, view.ranks[view.pairs[slow.pair].b].rank, slow.measure)
            })
            .collect();
        assert_eq!(named.len(), 2);
        assert!(named.contains(&(1, 6, Measure::OneWay)) && named.contains(&(1, 6, Measure::BothWays)), "{named:?}");
        let findings = view.findings();
        assert!(findings[0].starts_with("1 pair is slow: 84 values"), "{}", findings[0]);
        assert!(findings[1].starts_with("ranks 1 and 6 on node-0 and node-1 are slow: "), "{}", findings[1]);
    }

    #[test]
    fn ranks_that_share_a_gpu_have_no_link_to_be_slow() {
        let mut record = record(8, 4, one_slow);
        let device = |rank: u32, uuid: &str| DeviceFacts { rank, uuid: uuid.to_owned(), ..DeviceFacts::default() };
        let shared = |rank| device(rank, if rank == 1 || rank == 6 { "GPU-a" } else { "" });
        let devices = (0..8).map(shared).filter(|facts| !facts.uuid.is_empty()).collect();
        record.devices = Some(DevicesLine { devices, ..DevicesLine::default() });
        let view = PairsView::new(&record).unwrap();
        assert_eq!((view.slow.len(), view.compared), (0, 3 * 27));
        assert_eq!(view.findings()[1], "1 pair of ranks that share a GPU: not compared, as no link is between them");
    }

    #[test]
    fn a_disturbance_in_one_of_two_replicates_makes_no_pair_slow() {
        let mut record = record(8, 4, one_slow);
        let again = self::record(8, 4, healthy).cases;
        record.header.settings.replicates = 2;
        record.cases.extend(again.into_iter().map(|line| CaseLine { replicate: 1, ..line }));
        let view = PairsView::new(&record).unwrap();
        assert_eq!(view.slow, []);
        let disturbed = view.pairs.iter().find(|pair| (pair.a, pair.b) == (1, 6)).unwrap();
        let one_way = disturbed.values[Measure::OneWay as usize].unwrap();
        assert!(one_way.percent < 50.0 && one_way.replicates == 2, "{one_way:?}: it is shown all the same");
    }

    #[test]
    fn a_slow_rank_shows_in_its_standing() {
        let view = PairsView::new(&record(8, 1, slow_rank)).unwrap();
        let rates = |standing: &Standing| standing.percent[Measure::OneWay as usize].unwrap();
        let worst = view.hosts.iter().min_by(|one, other| rates(one).total_cmp(&rates(other))).unwrap();
        assert_eq!((worst.name.as_str(), worst.pairs), ("node-2", 7));
        assert!(
            view.hosts.iter().all(|host| host.name == "node-2" || rates(host) > 1.5 * rates(worst)),
            "{:?}",
            view.hosts
        );
    }

    #[test]
    fn a_record_that_was_cut_off_shows_what_is_there() {
        let mut cut = record(5, 5, healthy);
        cut.cases.truncate(4);
        cut.end = None;
        let view = PairsView::new(&cut).unwrap();
        assert_eq!((view.ranks.len(), view.pairs.len(), view.complete_pairs(), view.pairs_planned), (5, 4, 2, 10));
        let text = rendered(&cut, Format::Table, 80, Paint::Plain);
        assert!(text.contains("2 of 10 pairs of 5 ranks on 1 host measured by every measure"), "{text}");
        assert!(text.contains('?') && text.contains("11 missing"), "{text}");
        cut.cases.clear();
        let text = rendered(&cut, Format::Table, 80, Paint::Plain);
        assert!(text.contains("0 of 10 pairs of 0 ranks") && text.contains("nothing was measured"), "{text}");
        assert!(PairsView::new(&Record { plan: Plan { cases: Vec::new(), ..cut.plan.clone() }, ..cut }).is_none());
    }

    #[test]
    fn a_host_with_a_hostile_name_is_written_out() {
        let mut record = sample();
        record.header.ranks.iter_mut().for_each(|rank| rank.host = "=1\x1b[31m|<b>\u{202e}\n".to_owned());
        for format in [Format::Table, Format::Csv, Format::Markdown, Format::Json] {
            let text = rendered(&record, format, 140, Paint::Plain);
            let bad = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(bad, None, "{format:?}");
        }
        assert!(!rendered(&record, Format::Markdown, 80, Paint::Plain).contains("<b>"));
    }
}
