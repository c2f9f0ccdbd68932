//! A launch whose watchdog was lost and whose record could not say so, because the rank that writes it was stopped: what the
//! output of the other ranks says of it.

use super::record_state::RecordState;
use commgauge_model::record::Line;
use commgauge_model::record::unwatched_line::UnwatchedLine;
use commgauge_run::watchdog::{LOST_COLLECTOR, OWN_DEADLINE};

/// The line that a record lacks.
pub(super) fn missing_line(output: &str, record_state: &RecordState) -> Option<Line> {
    if record_state.is_unwatched {
        return None;
    }
    let rank: u32 =
        messages(output).find_map(|line| line.strip_prefix("rank ")?.split_once(LOST_COLLECTOR)?.0.parse().ok())?;
    let host = record_state.header.iter().flatten().find(|facts| facts.rank == rank)?.host.clone();
    Some(Line::Unwatched(UnwatchedLine { host, rank }))
}

/// Why a rank ended the launch by itself, where one did.
pub(super) fn own_deadline(output: &str) -> Option<&str> {
    messages(output).find(|line| line.contains(OWN_DEADLINE))
}

/// The messages of our programs; launchers may put the rank before them.
fn messages(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| Some(line.split_once("commgauge: ")?.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::line::RankFacts;

    #[test]
    fn what_the_ranks_say_of_their_watchdog_is_found_in_the_output() {
        let facts: RankFacts = serde_json::from_value(serde_json::json!({
            "rank": 1, "ranks": 2, "host": "vm", "node": 0, "pid": 7, "cores": "0", "numa_nodes": "0", "processor": "p", "kernel": "k"
        }))
        .expect("facts of a rank");
        let state =
            |is_unwatched| RecordState { header: Some(vec![facts.clone()]), is_unwatched, ..RecordState::default() };
        let output = "noise\n[1] commgauge: rank 1: the watchdog of this host is gone; the run goes on without it\n\
            commgauge: no progress within 4.00 s: rank 1 ends the launch by its own deadline, as the watchdog of its host is gone\n";
        let line = Line::Unwatched(UnwatchedLine { host: "vm".into(), rank: 1 });
        assert_eq!(missing_line(output, &state(false)), Some(line));
        assert_eq!(missing_line(output, &state(true)), None);
        assert_eq!(missing_line("rank 1 is fine\n", &state(false)), None);
        assert!(own_deadline(output).is_some_and(|why| why.starts_with("no progress within 4.00 s: rank 1")));
        assert_eq!(own_deadline("noise\n"), None);
    }
}
