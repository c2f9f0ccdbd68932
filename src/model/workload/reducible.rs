//! Reductions that NCCL alone can carry out: eight-bit floats, and sums of what is multiplied first.

use super::{Op, WorkPlan};
use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};

/// Why only NCCL carries an op out; none where others do too.
pub fn nccl_only_reason(op: &Op) -> Option<String> {
    if !op.collective.reduces() {
        return None;
    }
    if op.reduce_op == Some(ReduceOp::PreMulSum) {
        return Some(format!(
            "{} with mulsum is an operation of NCCL's (ncclRedOpCreatePreMulSum), which --backend nccl has",
            op.collective
        ));
    }
    let others = || ElementType::ALL.into_iter().filter(|element| !element.moves_only()).map(ElementType::name);
    op.element.moves_only().then(|| {
        format!(
            "{} cannot reduce {} on host memory, where it can only be moved; --backend nccl reduces it from NCCL 2.24 and compute \
             capability 9.0 on. Accepted here: {}",
            op.collective,
            op.element,
            others().collect::<Vec<_>>().join(", ")
        )
    })
}

impl WorkPlan {
    /// Refuses a plan if no case of it can run on any other backend than NCCL.
    ///
    /// # Errors
    /// A usage error that names the feature only NCCL has.
    pub fn ensure_portable(&self) -> Result<()> {
        let mut reasons = self.cases.iter().map(|case| nccl_only_reason(&case.op));
        match reasons.next().flatten() {
            Some(first)
                if self.products.is_empty() && self.copies.is_empty() && reasons.all(|reason| reason.is_some()) =>
            {
                Err(Error::usage(first))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    #[test]
    fn a_plan_that_only_nccl_can_run_is_refused_by_other_backends_unless_a_part_runs() {
        for (sweep, words) in [
            (
                "collectives = 'all_reduce'\nelement_types = 'fp8_e4m3'",
                Some("from NCCL 2.24 and compute capability 9.0 on"),
            ),
            ("collectives = 'reduce'\nreduce_ops = 'mulsum'", Some("reduce with mulsum is an operation of NCCL's")),
            ("collectives = 'all_gather'\nelement_types = 'fp8_e4m3'", None),
            ("collectives = 'all_reduce'\nreduce_ops = ['sum', 'mulsum']", None),
        ] {
            let suite = Suite::parse(Path::new("test.toml"), &format!("[[sweep]]\nbytes = '1KiB'\n{sweep}\n")).unwrap();
            let refused = WorkPlan::from_suite(&suite, 4).unwrap().ensure_portable();
            match words {
                None => assert!(refused.is_ok(), "{sweep}"),
                Some(words) => {
                    let error = refused.unwrap_err();
                    assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
                }
            }
        }
    }
}
