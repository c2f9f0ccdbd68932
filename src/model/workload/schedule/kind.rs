//! Conditions of each schedule on stages, virtual stages and micro-batches. The names are in `config`.

pub use crate::config::step::ScheduleKind;

/// Above this many events a schedule is refused rather than built: they would take gigabytes.
const MOST_EVENTS: u128 = 1 << 26;

impl ScheduleKind {
    /// Whether a rank has two chunks in a V: one on the way down, the other on the way back.
    pub fn is_v_shaped(self) -> bool {
        matches!(self, ScheduleKind::ZbV | ScheduleKind::VHalf | ScheduleKind::VMin | ScheduleKind::DualPipeV)
    }

    /// Whether a rank has chunks that micro-batches come to in rounds, so that the last rank sends to the first.
    pub fn goes_round(self) -> bool {
        matches!(self, ScheduleKind::Interleaved | ScheduleKind::InterleavedZb)
    }

    /// Copies of its layers' parameters on a rank, relative to the other kinds.
    pub fn parameter_copies(self) -> u32 {
        if self == ScheduleKind::DualPipe { 2 } else { 1 }
    }

    /// Which of the model's chunks, counted from the embedding, a rank's local chunk is.
    ///
    /// Interleaved: chunk x p + rank. V: rank going down, 2p - 1 - rank coming back. DualPipe: rank for the direction
    /// that starts at rank 0, p - 1 - rank for the other; both directions cover all chunks of the model.
    pub fn model_chunk(self, stages: u32, rank: u32, chunk: u32) -> u32 {
        match self {
            ScheduleKind::DualPipe if chunk == 1 => stages - 1 - rank,
            kind if kind.is_v_shaped() && chunk == 1 => 2 * stages - 1 - rank,
            _ => chunk * stages + rank,
        }
    }

    /// The chunks per rank, or the rule that is broken.
    ///
    /// # Errors
    /// The rule, with the nearest accepted values.
    pub fn check_rules(self, stages: u32, virtual_stages: u32, micro_batches: u32) -> Result<u32, String> {
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
            kind if kind.goes_round() => check_whole_groups(kind, stages, micro_batches)?,
            ScheduleKind::DualPipe => check_two_directions(stages, micro_batches)?,
            ScheduleKind::DualPipeV if u64::from(micro_batches) < 2 * u64::from(stages) => {
                return Err(format!(
                    "dualpipe-v: {micro_batches} micro-batches, must be at least 2 x pipeline stages = {}",
                    2 * u64::from(stages)
                ));
            }
            _ => {}
        }
        Ok(chunks)
    }

    /// The chunks per rank, or the rule that is broken: one of the schedule's own, or that its events fit memory.
    pub(super) fn check(self, stages: u32, virtual_stages: u32, micro_batches: u32) -> Result<u32, String> {
        let (name, chunks) = (self.name(), self.check_rules(stages, virtual_stages, micro_batches)?);
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

    /// Chunks on a rank, or the violated rule.
    pub fn chunks_of(self, virtual_stages: u32) -> Result<u32, String> {
        let name = self.name();
        match (self, virtual_stages) {
            (ScheduleKind::Interleaved, 1) => {
                Err("interleaved: 1 virtual stage, must be at least 2; without virtual stages it is 1f1b".to_string())
            }
            (ScheduleKind::InterleavedZb, 1) => {
                Err("interleaved-zb: 1 virtual stage, must be at least 2; without virtual stages it is zb-h1"
                    .to_string())
            }
            (kind, v) if kind.goes_round() => Ok(v),
            (kind, 1 | 2) if kind.is_v_shaped() => Ok(2),
            (kind, v) if kind.is_v_shaped() => {
                Err(format!("{name}: {v} virtual stages, must be 2, the two arms of its V (or 1, not set)"))
            }
            (ScheduleKind::DualPipe, 1) => Ok(2),
            (_, 1) => Ok(1),
            (_, v) => Err(format!("{name}: {v} virtual stages, must be 1; interleaved and interleaved-zb take more")),
        }
    }
}

fn check_whole_groups(kind: ScheduleKind, stages: u32, micro_batches: u32) -> Result<(), String> {
    if micro_batches.is_multiple_of(stages) {
        return Ok(());
    }
    Err(format!(
        "{kind}: {micro_batches} micro-batches, must be a multiple of the {stages} pipeline stages: {}",
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
