//! The schedules by name, and what each asks of stages, virtual stages and micro-batches.

use std::fmt;
use std::str::FromStr;

/// A family of pipeline schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScheduleKind {
    /// One micro-batch in flight, one rank at work.
    Naive,
    /// All forwards, then all backwards (arXiv 1811.06965).
    GPipe,
    /// One forward, one backward (arXiv 2104.04473 section 2.2.1).
    OneForwardOneBackward,
    /// 1F1B over several chunks per rank (arXiv 2104.04473 section 2.2.2).
    Interleaved,
    /// 1F1B with its weight gradients moved into the bubble by hand (arXiv 2401.10241 section 2.1).
    ZbH1,
    /// Twice the forwards in flight, no bubble where F = B = W (arXiv 2401.10241 section 2.2).
    ZbH2,
    /// Searched within the memory of 1F1B (arXiv 2401.10241 section 3).
    Zb1p,
    /// Searched within twice the memory of 1F1B (arXiv 2401.10241 section 3).
    Zb2p,
    /// Two chunks in a V, the memory of 1F1B (arXiv 2401.10241 section 6, arXiv 2405.15362).
    ZbV,
    /// Two chunks in a V, half the memory of 1F1B (arXiv 2405.15362).
    VHalf,
    /// Two chunks in a V, a third of the memory of 1F1B (arXiv 2405.15362).
    VMin,
    /// Micro-batches from both ends over two copies of the model (arXiv 2412.19437 section 3.2.1).
    DualPipe,
    /// DualPipe cut in half and folded to a V: one copy of the model.
    DualPipeV,
}

/// Above this many events a schedule is refused rather than built: they would take gigabytes.
const MOST_EVENTS: u128 = 1 << 26;

impl ScheduleKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [ScheduleKind; 13] = [
        ScheduleKind::Naive,
        ScheduleKind::GPipe,
        ScheduleKind::OneForwardOneBackward,
        ScheduleKind::Interleaved,
        ScheduleKind::ZbH1,
        ScheduleKind::ZbH2,
        ScheduleKind::Zb1p,
        ScheduleKind::Zb2p,
        ScheduleKind::ZbV,
        ScheduleKind::VHalf,
        ScheduleKind::VMin,
        ScheduleKind::DualPipe,
        ScheduleKind::DualPipeV,
    ];

    /// The name in flags and files.
    pub fn name(self) -> &'static str {
        match self {
            ScheduleKind::Naive => "naive",
            ScheduleKind::GPipe => "gpipe",
            ScheduleKind::OneForwardOneBackward => "1f1b",
            ScheduleKind::Interleaved => "interleaved",
            ScheduleKind::ZbH1 => "zb-h1",
            ScheduleKind::ZbH2 => "zb-h2",
            ScheduleKind::Zb1p => "zb-1p",
            ScheduleKind::Zb2p => "zb-2p",
            ScheduleKind::ZbV => "zb-v",
            ScheduleKind::VHalf => "v-half",
            ScheduleKind::VMin => "v-min",
            ScheduleKind::DualPipe => "dualpipe",
            ScheduleKind::DualPipeV => "dualpipe-v",
        }
    }

    /// Whether a rank holds two chunks in a V: the one at its place going down, the other at its place coming back.
    pub fn is_v_shaped(self) -> bool {
        matches!(self, ScheduleKind::ZbV | ScheduleKind::VHalf | ScheduleKind::VMin | ScheduleKind::DualPipeV)
    }

    /// How many copies of its layers' parameters a rank holds, against the other kinds.
    pub fn parameter_copies(self) -> u32 {
        if self == ScheduleKind::DualPipe { 2 } else { 1 }
    }

    /// The chunks per rank, or the rule that is broken.
    pub(super) fn check(self, stages: u32, virtual_stages: u32, micro_batches: u32) -> Result<u32, String> {
        let name = self.name();
        for (what, count) in
            [("pipeline stages", stages), ("virtual stages", virtual_stages), ("micro-batches", micro_batches)]
        {
            if count == 0 {
                return Err(format!("{name}: 0 {what}, must be at least 1"));
            }
        }
        let chunks = self.chunks_of(virtual_stages)?;
        match self {
            ScheduleKind::Interleaved => check_whole_groups(stages, micro_batches)?,
            ScheduleKind::DualPipe => check_two_directions(stages, micro_batches)?,
            ScheduleKind::DualPipeV if u64::from(micro_batches) < 2 * u64::from(stages) => {
                return Err(format!(
                    "dualpipe-v: {micro_batches} micro-batches, must be at least 2 x pipeline stages = {}",
                    2 * u64::from(stages)
                ));
            }
            _ => {}
        }
        let events = 3 * u128::from(stages) * u128::from(chunks) * u128::from(micro_batches);
        if events > MOST_EVENTS {
            let most = match MOST_EVENTS / (3 * u128::from(stages) * u128::from(chunks)) {
                0 => "fewer stages or chunks".to_string(),
                most => format!("at most {most} micro-batches"),
            };
            return Err(format!(
                "{name}: {micro_batches} micro-batches over {stages} stages of {chunks} chunks make {events} passes, more \
                 than {MOST_EVENTS}; {most} are accepted"
            ));
        }
        Ok(chunks)
    }

    fn chunks_of(self, virtual_stages: u32) -> Result<u32, String> {
        let name = self.name();
        match (self, virtual_stages) {
            (ScheduleKind::Interleaved, 1) => {
                Err("interleaved: 1 virtual stage, must be at least 2; without virtual stages it is 1f1b".to_string())
            }
            (ScheduleKind::Interleaved, v) => Ok(v),
            (kind, 1 | 2) if kind.is_v_shaped() => Ok(2),
            (kind, v) if kind.is_v_shaped() => {
                Err(format!("{name}: {v} virtual stages, must be 2, the two arms of its V (or 1, not set)"))
            }
            (ScheduleKind::DualPipe, 1) => Ok(2),
            (_, 1) => Ok(1),
            (_, v) => Err(format!("{name}: {v} virtual stages, must be 1; interleaved takes more")),
        }
    }
}

fn check_whole_groups(stages: u32, micro_batches: u32) -> Result<(), String> {
    if micro_batches.is_multiple_of(stages) {
        return Ok(());
    }
    Err(format!(
        "interleaved: {micro_batches} micro-batches, must be a multiple of the {stages} pipeline stages: {}",
        nearest(u64::from(micro_batches), u64::from(stages), u64::from(stages))
    ))
}

fn check_two_directions(stages: u32, micro_batches: u32) -> Result<(), String> {
    if !stages.is_multiple_of(2) {
        return Err(format!("dualpipe: {stages} pipeline stages, must be even: {}", nearest(u64::from(stages), 2, 2)));
    }
    let fewest = 2 * u64::from(stages);
    if u64::from(micro_batches) < fewest || !micro_batches.is_multiple_of(2) {
        return Err(format!(
            "dualpipe: {micro_batches} micro-batches, must be even and at least 2 x pipeline stages = {fewest}: {}",
            nearest(u64::from(micro_batches), 2, fewest)
        ));
    }
    Ok(())
}

/// The multiples of `step` next to `count`, none below `fewest`.
fn nearest(count: u64, step: u64, fewest: u64) -> String {
    let below = count / step * step;
    if below < fewest {
        format!("{fewest} is the nearest")
    } else {
        format!("{below} or {} are the nearest", below + step)
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ScheduleKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ScheduleKind, String> {
        ScheduleKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<&str> = ScheduleKind::ALL.iter().map(|kind| kind.name()).collect();
            format!("unknown pipeline schedule {text:?}; known: {}", names.join(", "))
        })
    }
}
