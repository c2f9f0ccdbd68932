//! Whether the library carried data over what the machine file requires in `[transport]`, and whether its link could carry more.

use super::Problem;
use super::comparability::LoadedRecord;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::RequiredTransport;
use commgauge_model::record::Record;
use commgauge_model::record::counters::PerftestLine;
use commgauge_model::record::library_use::LibraryUse;
use commgauge_model::record::line::RankFacts;

/// Failures where ranks used something else; no pass (3) where the record does not say what they used.
pub(super) fn problems(loaded: &LoadedRecord, machine: Option<&Machine>) -> Vec<Problem> {
    let Some((machine, required)) = machine.and_then(|machine| Some((machine, machine.transport.as_ref()?))) else {
        return Vec::new();
    };
    let (record, file) = (loaded.path.shown(), machine.path.shown());
    let unknown =
        |why: &str| Problem { exit_code: 3, text: format!("{record}: {why}, and {file} requires it in `[transport]`") };
    let Some(line) = &loaded.record.meanwhile.library_use else {
        return vec![unknown("what the library carried data over is not recorded")];
    };
    let mut problems: Vec<Problem> = line
        .absent
        .iter()
        .map(|why| unknown(&format!("what the library carried data over is not known ({why})")))
        .collect();
    for of_ranks in &line.uses {
        for Problem { exit_code, text } in compared(required, &of_ranks.used) {
            let text = format!("{record}: ranks {}: {text} ({file}, `[transport]`)", of_ranks.ranks);
            problems.push(Problem { exit_code, text });
        }
    }
    problems
}

/// The requirements of which these ranks show the contrary (1), or nothing (3).
fn compared(required: &RequiredTransport, used: &LibraryUse) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut add = |exit_code, text| found.push(Problem { exit_code, text });
    if let Some(net) = &required.net {
        let networks = used.networks_used();
        let others: Vec<&str> = networks.iter().copied().filter(|network| !network.starts_with(&**net)).collect();
        if networks.is_empty() {
            add(3, format!("the network is not known; {net} is required"));
        } else if !others.is_empty() {
            add(1, format!("the network is {}; {net} is required", others.join(", ")));
        }
    }
    let switches = [("GPUDirect RDMA", required.gpudirect, used.gpudirect()), ("NVLS", required.nvls, used.nvls)];
    for (name, wanted, is) in switches {
        let said = |on: bool| if on { "in use" } else { "not in use" };
        match (wanted, is) {
            (Some(wanted), Some(is)) if wanted != is => {
                add(1, format!("{name} is {}; it is required to be {}", said(is), said(wanted)));
            }
            (Some(wanted), None) => {
                add(3, format!("whether {name} is in use is not known; it is required to be {}", said(wanted)));
            }
            _ => {}
        }
    }
    found
}

/// Below this share of a rate another one is slow.
const SLOW: f64 = 0.8;

/// What `ib_write_bw` says of the link between two hosts, next to the messages of the same ranks.
pub fn contrasts(record: &Record) -> Vec<String> {
    let name = record.header.backend.name.to_uppercase();
    let sentence = |write: &PerftestLine| {
        let facts = write.ranks.map(|rank| record.header.ranks.iter().find(|facts| facts.rank == rank));
        let place = |end: usize| format!("{} of {}", write.adapters[end], facts[end].map_or("?", |facts| &facts.host));
        let memory = if write.gpudirect { " by GPUDirect" } else { "" };
        let what = format!("ib_write_bw{memory} from {} to {}", place(1), place(0));
        let Some(carried) = write.bytes_per_second else {
            return format!("{what}: {}", write.problem.as_deref().unwrap_or("not measured"));
        };
        let sent = record.message_rate(write.ranks);
        let line = facts[1].and_then(RankFacts::active_adapter).filter(|(adapter, _)| *adapter == write.adapters[1]);
        let is_slow = line.map(|(_, rate)| carried.0 < SLOW * rate);
        let verdict = match (sent.map(|sent| sent.0 < SLOW * carried.0), is_slow) {
            (Some(_), Some(true)) => "both slow: the link".to_owned(),
            (Some(true), Some(false)) => format!("the link is fine, look at {name}"),
            (Some(true), None) => format!("the link carries more, look at {name}"),
            (Some(false), Some(false)) => "both as fast as the adapter".to_owned(),
            (Some(false), None) => "both alike: if that is slow, it is the link".to_owned(),
            (None, _) => "no message of these ranks to compare with".to_owned(),
        };
        let sent = sent.map_or_else(String::new, |sent| format!("{name} {sent}, "));
        format!("{sent}{what} {carried}: {verdict}")
    };
    record.meanwhile.perftest.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded, machine};
    use super::*;
    use commgauge_base::collective::Collective;
    use commgauge_base::units::Rate;
    use commgauge_model::record::Line;
    use commgauge_model::record::library_use::LibraryUseLine;
    use commgauge_model::record::line::PairTimes;

    fn used(log: &str) -> LibraryUse {
        let mut used = LibraryUse::default();
        log.lines().for_each(|line| used.observe(&format!("NCCL INFO {line}")));
        used
    }

    fn record(line: Option<LibraryUseLine>) -> LoadedRecord {
        let mut all = lines("r", &[vec![1000.0; 12]]);
        let at = all.len() - 1;
        all.splice(at..at, line.map(|line| Line::LibraryUse(Box::new(line))));
        loaded("r.jsonl", all)
    }

    /// A record of messages between two ranks at a rate, next to what `ib_write_bw` found there.
    fn contrasted(sent: Option<f64>, carried: Option<f64>, adapter: &str) -> String {
        let mut record = record(None).record;
        record.header.backend.name = "nccl".to_owned();
        let adapters = vec![format!("mlx5_0 (same PCIe switch, {adapter})")];
        let rank = |rank, host| RankFacts { adapters: adapters.clone(), ..RankFacts::on_host(rank, host) };
        record.header.ranks = vec![rank(0, "a"), rank(1, "b")];
        let (facts, line) = (&mut record.plan.cases[0], &mut record.cases[0]);
        (facts.collective, facts.transfers_per_call) = (Collective::PingPong, 2);
        let bytes = facts.bytes_total.0 as f64 * 2.0 * f64::from(line.calls_per_sample);
        line.pairs = sent.map(|sent| {
            let median_nanoseconds = vec![(bytes / sent * 1e9).round() as u64];
            Box::new(PairTimes { rank_a: vec![1], rank_b: vec![0], median_nanoseconds, ..PairTimes::default() })
        });
        record.meanwhile.perftest = vec![PerftestLine {
            ranks: [0, 1],
            adapters: ["mlx5_1", "mlx5_0"].map(str::to_owned),
            gpudirect: false,
            bytes_per_second: carried.map(Rate),
            problem: carried.is_none().then(|| "b: broken".to_owned()),
        }];
        contrasts(&record).concat()
    }

    #[test]
    fn slow_messages_over_fast_adapters_name_the_library_and_slow_adapters_the_link() {
        let (sent, ndr) = (Some(12e9), "400 Gb/sec (4X NDR)");
        let what = "ib_write_bw from mlx5_0 of b to mlx5_1 of a";
        for (sent, carried, adapter, expected) in [
            (sent, None, ndr, format!("{what}: b: broken")),
            (None, Some(13e9), "unknown", format!("{what} 13.0 GB/s: no message of these ranks to compare with")),
            (sent, Some(46e9), ndr, format!("NCCL 12.0 GB/s, {what} 46.0 GB/s: the link is fine, look at NCCL")),
            (sent, Some(13e9), ndr, format!("NCCL 12.0 GB/s, {what} 13.0 GB/s: both slow: the link")),
            (
                sent,
                Some(46e9),
                "unknown",
                format!("NCCL 12.0 GB/s, {what} 46.0 GB/s: the link carries more, look at NCCL"),
            ),
            (
                sent,
                Some(13e9),
                "unknown",
                format!("NCCL 12.0 GB/s, {what} 13.0 GB/s: both alike: if that is slow, it is the link"),
            ),
            (
                sent,
                Some(13e9),
                "100 Gb/sec (4X EDR)",
                format!("NCCL 12.0 GB/s, {what} 13.0 GB/s: both as fast as the adapter"),
            ),
        ] {
            assert_eq!(contrasted(sent, carried, adapter), expected);
        }
    }

    #[test]
    fn another_transport_fails_and_an_unknown_one_never_passes() {
        const INFINIBAND: &str = "Using network IB\nNVLS multicast support is available on dev 0\n\
            Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA";
        const STAGED: &str = "Using network IB\nChannel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0";
        const SOCKETS: &str = "Using network Socket\nChannel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0";
        let requires =
            |net: Option<&str>, gpudirect, nvls| RequiredTransport { net: net.map(str::to_owned), gpudirect, nvls };
        for (log, required, expected) in [
            (INFINIBAND, requires(Some("IB"), Some(true), Some(true)), None),
            (
                INFINIBAND,
                requires(Some("Socket"), None, None),
                Some((1, "the network is IB; Socket is required (m.toml, `[transport]`)")),
            ),
            (
                INFINIBAND,
                requires(None, None, Some(false)),
                Some((1, "NVLS is in use; it is required to be not in use")),
            ),
            (
                STAGED,
                requires(Some("IB"), Some(true), None),
                Some((1, "ranks 0: GPUDirect RDMA is not in use; it is required to be in use")),
            ),
            (STAGED, requires(None, None, Some(true)), Some((3, "whether NVLS is in use is not known"))),
            (SOCKETS, requires(Some("IB"), None, None), Some((1, "the network is Socket; IB is required"))),
            ("", requires(Some("IB"), None, None), Some((3, "the network is not known"))),
        ] {
            let machine = Machine { transport: Some(required), ..machine("1GB/s") };
            let loaded = record(Some(LibraryUseLine::of(vec![Ok(used(log))])));
            let found = problems(&loaded, Some(&machine));
            assert_eq!(found.len(), usize::from(expected.is_some()), "{log}");
            if let Some((exit_code, said)) = expected {
                assert_eq!(found[0].exit_code, exit_code, "{}", found[0].text);
                assert!(found[0].text.contains(said), "{said}: {}", found[0].text);
            }
            for unknown in [None, Some(LibraryUseLine::of(vec![Err("the environment has NCCL_DEBUG".into())]))] {
                let found = problems(&record(unknown), Some(&machine));
                assert_eq!(found.iter().map(|problem| problem.exit_code).collect::<Vec<_>>(), [3]);
            }
        }
        assert!(problems(&record(None), Some(&machine("1GB/s"))).is_empty(), "nothing is required");
    }
}
