//! Whether the library carried data over what the machine file requires in `[transport]`.

use super::Problem;
use super::comparability::LoadedRecord;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::RequiredTransport;
use commgauge_model::record::library_use::LibraryUse;

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

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded, machine};
    use super::*;
    use commgauge_model::record::Line;
    use commgauge_model::record::library_use::LibraryUseLine;

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
