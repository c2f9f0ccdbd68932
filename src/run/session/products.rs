//! The matrix products of a run, in every replicate: each on all ranks at the same time.

use super::completed::CompletedWork;
use super::request::Request;
use super::work_loop::{Run, WorkItem};
use crate::backend::{Backend, product_bytes};
use crate::measure::{Turns, WARM_UP_RUNS, measure_local};
use crate::watchdog::{Activity, deadline_of_product};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::line::{Line, Outcome, RankFacts};
use commgauge_model::record::product_line::{ProductFacts, ProductLine};
use commgauge_model::workload::{Estimate, ProductShape};

/// Rejects products that the backend cannot compute, or on host memory those whose matrices do not fit, before anything is measured.
pub(super) fn preflight(world: &dyn World, backend: &mut dyn Backend, request: &Request) -> Result<()> {
    if request.plan.products.is_empty() {
        return Ok(());
    }
    agree(world, backend.prepare_products(&request.plan.products))?;
    if !backend.refuses_oversized_plans() {
        return Ok(());
    }
    let available = backend.bytes_available();
    let verdict = match request.plan.products.iter().max_by_key(|shape| product_bytes(shape)) {
        Some(shape) if product_bytes(shape) > available => {
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

/// Writes one line for each product and replicate.
pub(super) fn measure_all(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    for replicate in 0..run.request.settings.replicates {
        let shapes = run.request.plan.products.iter().enumerate();
        run.carry_out_all(backend, shapes.map(|(index, shape)| ProductWork { index, shape, replicate }))?;
    }
    Ok(())
}

/// A product of a replicate.
struct ProductWork<'a> {
    /// Its index in the plan.
    index: usize,
    shape: &'a ProductShape,
    replicate: u32,
}

impl WorkItem for ProductWork<'_> {
    fn is_completed(&self, completed: &CompletedWork) -> bool {
        completed.has_product(self.index, self.replicate)
    }

    fn estimate(&self, run: &Run) -> Estimate {
        Estimate::Budget(run.request.settings.case_budget)
    }

    fn carry_out(&mut self, run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
        let line = self.line(run, backend)?;
        run.record_if_whole(Line::Product(Box::new(line)))
    }
}

impl ProductWork<'_> {
    fn line(&self, run: &Run, backend: &mut dyn Backend) -> Result<ProductLine> {
        let ProductWork { shape, replicate, .. } = *self;
        let settings = &run.request.settings;
        let mut line = ProductLine {
            product: ProductFacts::of(shape),
            replicate,
            library: backend.product_library().to_owned(),
            ranks_per_host: ranks_per_host(&run.ranks.facts),
            threads_per_rank: 1,
            outcome: Outcome::Measured { verified: settings.verify },
            warm_up_products: WARM_UP_RUNS,
            slowest_nanoseconds: Vec::new(),
            slowest_rank: Vec::new(),
        };
        if let Some(reason) = run.common_skip_reason(backend.product_skip_reason(shape))? {
            line.outcome = Outcome::Skipped { reason };
            return Ok(line);
        }
        let deadline = run.request.watch.timeout().unwrap_or_else(|| deadline_of_product(shape));
        let named = || format!("product of {} x {} x {}, replicate {replicate}", shape.m, shape.n, shape.k);
        run.request.watch.begin(|| Activity::named(named(), deadline));
        let mut product = match run.bound(backend.bind_product(shape))? {
            Ok(product) => product,
            Err(failed) => return Ok(ProductLine { outcome: failed, ..line }),
        };
        match measure_local(&run.replay_context(backend), product.as_mut(), run.repetitions(), Turns::TOGETHER)? {
            Ok(times) => {
                line.slowest_nanoseconds = times.slowest_nanoseconds;
                line.slowest_rank = times.slowest_rank;
            }
            Err(outcome) => line.outcome = outcome,
        }
        Ok(line)
    }
}

fn ranks_per_host(ranks: &[RankFacts]) -> u32 {
    let nodes = ranks.iter().map(|facts| facts.node).max().unwrap_or(0);
    let on = |node: u32| ranks.iter().filter(|facts| facts.node == node).map(|facts| facts.ranks).sum::<u32>();
    (0..=nodes).map(on).max().unwrap_or(1)
}
