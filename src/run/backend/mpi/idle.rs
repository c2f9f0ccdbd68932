//! The call of a rank that is in none of the groups: it marks and waits like the others, and moves no data.

use super::call::hold_until;
use crate::backend::{Call, Marks, Mismatch};
use crate::mpi_call::Waiting;
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::host_clock::{self, Readings};
use std::time::Duration;

/// The call of an idle rank, which is in none of the groups.
pub struct IdleCall {
    marks: Readings,
    /// Whether the working ranks have data to check. All ranks must answer alike, since they agree on the result of
    /// the check.
    others_have_data: bool,
    waiting: Waiting,
}

impl IdleCall {
    pub(in crate::backend) fn new(collective: Collective, waiting: Waiting) -> IdleCall {
        IdleCall { marks: Readings::default(), others_have_data: collective != Collective::Barrier, waiting }
    }
}

impl Call for IdleCall {
    fn fill(&mut self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&mut self) -> Result<()> {
        Ok(())
    }

    fn reserve_marks(&mut self, marks: usize) {
        self.marks.reserve(marks);
    }

    fn mark(&mut self) {
        self.marks.take();
    }

    fn hold_until(&mut self, start_nanoseconds: u64) -> bool {
        hold_until(start_nanoseconds, self.waiting)
    }

    fn complete(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn read_marks(&self, marks: &mut Marks) {
        marks.local_ranks = 1;
        self.marks.copy_to(&mut marks.nanoseconds);
    }

    fn check(&mut self) -> Result<Option<Mismatch>> {
        Ok(None)
    }

    fn verifies(&self) -> bool {
        self.others_have_data
    }

    fn now_nanoseconds(&self) -> u64 {
        host_clock::now_nanoseconds()
    }

    fn buffer_copies(&self) -> u32 {
        1
    }

    fn is_idle_rank(&self, _: usize) -> bool {
        true
    }

    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_rank_marks_and_waits_but_moves_no_data() {
        let mut call = IdleCall::new(Collective::AllReduce, Waiting::Yields);
        call.reserve_marks(2);
        call.mark();
        assert!(call.hold_until(call.now_nanoseconds() + 1_000_000));
        call.enqueue().unwrap();
        call.mark();
        let mut marks = Marks::default();
        call.read_marks(&mut marks);
        assert!(marks.at(1, 0) - marks.at(0, 0) >= 1_000_000 - 100_000, "{marks:?}");
        assert!(call.is_idle_rank(0) && call.verifies());
        assert_eq!(call.check().unwrap(), None);
    }
}
