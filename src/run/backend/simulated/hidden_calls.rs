//! The collectives of a simulated step that something hides: as long as their groups took, without the time for which ranks wait for the last
//! of them.

use crate::backend::HiddenCall;
use commgauge_model::workload::replay::ReplayProgram;

/// By stage and op: the calls of each group so far, if something hides them.
pub(super) struct Hidden(Vec<Vec<Vec<HiddenCall>>>);

impl Hidden {
    /// None so far. `groups` are by stage and op, as many as there are durations.
    pub fn new(programs: &[Option<ReplayProgram>], groups: &[Vec<Vec<f64>>]) -> Hidden {
        let of_stage = |(program, groups): (&Option<ReplayProgram>, &Vec<Vec<f64>>)| {
            let hidden = program.as_ref().map_or_else(Vec::new, ReplayProgram::hidden_collectives);
            let of_op = |(op, (is_hidden, groups)): (usize, (bool, &Vec<f64>))| match is_hidden {
                true => vec![HiddenCall { op, ..HiddenCall::default() }; groups.len()],
                false => Vec::new(),
            };
            hidden.into_iter().zip(groups).enumerate().map(of_op).collect()
        };
        Hidden(programs.iter().zip(groups).map(of_stage).collect())
    }

    /// Before a step.
    pub fn clear(&mut self) {
        for call in self.0.iter_mut().flatten().flatten() {
            (call.calls, call.nanoseconds) = (0, 0);
        }
    }

    /// A call of a group.
    pub fn add(&mut self, program: &ReplayProgram, op: usize, group: usize, nanoseconds: u64) {
        if let Some(hidden) = self.0[program.stage as usize][op].get_mut(group) {
            hidden.calls += 1;
            hidden.nanoseconds += nanoseconds;
        }
    }

    /// Those of a rank, all calls of an op in one; `group` is its group of an index of the plan's groups.
    pub fn of_rank(&self, program: &ReplayProgram, group: impl Fn(usize) -> u32) -> Vec<HiddenCall> {
        let of_ops = self.0[program.stage as usize].iter().zip(&program.groups);
        let of_group = of_ops.filter_map(|(of_op, groups)| of_op.get(group(*groups) as usize).copied());
        of_group.filter(|hidden| hidden.calls > 0).collect()
    }
}
