//! The matrix products of a run, in every replicate: each on all ranks at the same time.

use super::resume::CompletedWork;
use super::{Request, SharedJournal, Signals};
use crate::backend::{Backend, product_bytes};
use crate::measure::{Repetitions, ReplayContext, WARM_UP_PRODUCTS, measure_product};
use crate::session::steps::Tally;
use crate::watchdog::{Activity, deadline_of_product};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::line::{Line, Outcome, RankFacts};
use commgauge_model::record::product_line::{ProductFacts, ProductLine};
use commgauge_model::workload::ProductShape;

/// Default number of repetitions of each product.
const REPETITIONS: u32 = 50;

/// Inputs of measuring the products.
pub(super) struct Products<'a> {
    pub world: &'a dyn World,
    pub request: &'a Request,
    pub ranks: &'a [RankFacts],
    pub completed: &'a CompletedWork,
    pub signals: &'a Signals,
}

/// Rejects products whose matrices do not fit into memory, before anything is measured.
pub(super) fn preflight(world: &dyn World, backend: &mut dyn Backend, request: &Request) -> Result<()> {
    if request.plan.products.is_empty() {
        return Ok(());
    }
    agree(world, backend.prepare_products(&request.plan.products))?;
    let available = backend.bytes_available();
    let verdict = match request.plan.products.iter().max_by_key(|shape| product_bytes(shape)) {
        Some(shape) if !backend.facts().virtual_clock && product_bytes(shape) > available => {
            let (needed, layer) = (product_bytes(shape), shape.uses.join("; "));
            Err(Error::usage(format!(
                "the product of {layer} needs {needed} of matrices on each rank, and there is {available} for each; choose a \
                 smaller micro-batch, or a higher tensor-parallel degree"
            )))
        }
        _ => Ok(()),
    };
    agree(world, verdict)
}

impl Products<'_> {
    /// Writes one line for each product and replicate.
    pub(super) fn measure_all(
        &self,
        backend: &mut dyn Backend,
        journal: &mut SharedJournal,
        tally: &mut Tally,
    ) -> Result<()> {
        for replicate in 0..self.request.settings.replicates {
            for (index, shape) in self.request.plan.products.iter().enumerate() {
                if tally.is_stopped() || self.completed.has_product(index, replicate) {
                    continue;
                }
                let Some(work) = self.signals.begin(self.world, self.request.settings.case_budget)? else {
                    tally.out_of_time = true;
                    return Ok(());
                };
                let line = self.line(backend, shape, replicate)?;
                tally.signal = self.signals.agreed(self.world)?;
                if tally.signal != 0 {
                    // It was interrupted, and the record cannot express a partial result; a resumed run measures it
                    // again.
                    return Ok(());
                }
                tally.corrupt += u64::from(matches!(line.outcome, Outcome::Corrupt { .. }));
                tally.failed += u64::from(matches!(line.outcome, Outcome::Failed { .. }));
                journal.write(self.world, || Line::Product(Box::new(line)))?;
                self.signals.done(&work);
            }
        }
        Ok(())
    }

    fn line(&self, backend: &mut dyn Backend, shape: &ProductShape, replicate: u32) -> Result<ProductLine> {
        let settings = &self.request.settings;
        let mut line = ProductLine {
            product: ProductFacts::of(shape),
            replicate,
            library: backend.product_library().to_owned(),
            ranks_per_host: self.ranks_per_host(),
            threads_per_rank: 1,
            outcome: Outcome::Measured { verified: settings.verify },
            warm_up_products: WARM_UP_PRODUCTS,
            slowest_nanoseconds: Vec::new(),
            slowest_rank: Vec::new(),
        };
        if backend.facts().virtual_clock {
            let reason = "the simulated backend computes nothing; its machine file has no rate of products".to_owned();
            line.outcome = Outcome::Waived { reason };
            return Ok(line);
        }
        let deadline = self.request.watch.timeout().unwrap_or_else(|| deadline_of_product(shape));
        let named = || format!("product of {} x {} x {}, replicate {replicate}", shape.m, shape.n, shape.k);
        self.request.watch.begin(|| Activity::named(named(), deadline));
        // Nothing is computed before all ranks have their matrices: the others would wait for a rank that failed to
        // allocate.
        let mut product = match agree(self.world, backend.bind_product(shape)) {
            Ok(product) => product,
            Err(error) if error.is_shared() => {
                line.outcome = Outcome::Failed { reason: error.to_string() };
                return Ok(line);
            }
            Err(error) => return Err(error),
        };
        let context = ReplayContext {
            world: self.world,
            local_ranks: backend.local_ranks(),
            verify: settings.verify,
            interrupted: self.signals.raised(),
        };
        let most = settings.fixed_iterations.unwrap_or(REPETITIONS);
        match measure_product(&context, product.as_mut(), Repetitions { most, budget: settings.case_budget })? {
            Ok(times) => {
                line.slowest_nanoseconds = times.slowest_nanoseconds;
                line.slowest_rank = times.slowest_rank;
            }
            Err(outcome) => line.outcome = outcome,
        }
        Ok(line)
    }

    fn ranks_per_host(&self) -> u32 {
        let nodes = self.ranks.iter().map(|facts| facts.node).max().unwrap_or(0);
        let on = |node: u32| self.ranks.iter().filter(|facts| facts.node == node).map(|facts| facts.ranks).sum::<u32>();
        (0..=nodes).map(on).max().unwrap_or(1)
    }
}
