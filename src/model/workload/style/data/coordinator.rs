//! Which parameters DeepSpeed's ZeRO-3 gathers, at which module: it knows the modules of a micro-batch from the ones before, fetches
//! what the module at work misses, fetches ahead, and releases what is not used again soon.
//!
//! DeepSpeed runtime/zero/partitioned_param_coordinator.py fetch_sub_module, release_sub_module.

use crate::config::step::ModuleChoices;
use crate::workload::when::Pass;
use std::collections::{BTreeSet, VecDeque};

/// A tensor of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Its elements.
    pub elements: u64,
    /// Whether it stays on every rank.
    pub persistent: bool,
}

/// A module at work: what it reads, by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    pub pass: Pass,
    pub parameters: Vec<usize>,
}

/// Parameters that are gathered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gather {
    pub pass: Pass,
    pub urgency: Urgency,
    pub parameters: Vec<usize>,
}

/// Whether a module waits for what is gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// The module at work does.
    Needed,
    /// A later one will.
    Ahead,
}

/// Whether the tensors that stay on every rank are there when a micro-batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistent {
    /// They are: an optimizer step has brought them.
    Here,
    /// They are not: no optimizer step has ended.
    NotYet,
}

/// The gathers of one of several micro-batches of a step, whose modules work in this order.
///
/// What a module releases is decided in the first micro-batch in which all modules are known, the second of all, and kept. Where a step
/// has several, that is before the first optimizer step.
pub(super) fn gathers(
    parameters: &[Parameter],
    trace: &[Module],
    choices: ModuleChoices,
    micro_batches: u64,
) -> Vec<Gather> {
    let new = |persistent| Coordinator::new(parameters, trace, choices, persistent);
    let mut later = new(Persistent::Here);
    if micro_batches > 1 {
        let mut first = new(Persistent::NotYet);
        first.work();
        later.known = Some(first.decided);
    }
    later.work();
    later.gathers
}

struct Coordinator<'a> {
    parameters: &'a [Parameter],
    trace: &'a [Module],
    choices: ModuleChoices,
    here: Vec<bool>,
    /// Elements gathered and not released.
    elements_here: i128,
    /// Every use of a parameter that was not yet looked at, with the module that has it.
    uses: VecDeque<(usize, usize)>,
    /// The last use of each parameter that was looked at.
    looked_at: Vec<Option<usize>>,
    gathers: Vec<Gather>,
    /// What each module released so far would release, and what it is known to, where that was decided before.
    decided: Vec<Vec<usize>>,
    known: Option<Vec<Vec<usize>>>,
}

impl<'a> Coordinator<'a> {
    fn new(
        parameters: &'a [Parameter],
        trace: &'a [Module],
        choices: ModuleChoices,
        persistent: Persistent,
    ) -> Coordinator<'a> {
        let uses = trace.iter().enumerate().flat_map(|(index, module)| {
            let each: BTreeSet<usize> = module.parameters.iter().copied().collect();
            each.into_iter().map(move |parameter| (parameter, index))
        });
        Coordinator {
            parameters,
            trace,
            choices,
            here: parameters.iter().map(|each| each.persistent && persistent == Persistent::Here).collect(),
            elements_here: 0,
            uses: uses.collect(),
            looked_at: vec![None; parameters.len()],
            gathers: Vec::new(),
            decided: Vec::new(),
            known: None,
        }
    }

    fn work(&mut self) {
        for index in 0..self.trace.len() {
            self.fetch(index);
            self.fetch_ahead(index);
            self.release(index);
        }
    }

    /// What the module needs and is not there.
    fn fetch(&mut self, index: usize) {
        let needed = self.trace[index].parameters.iter().copied();
        let missing = needed.filter(|parameter| !self.here[*parameter]).collect();
        self.gather(index, Urgency::Needed, missing);
    }

    /// What the next modules need, up to a number of parameters and while not too many are there.
    fn fetch_ahead(&mut self, index: usize) {
        let own = &self.trace[index].parameters;
        let unseen = own.iter().filter(|parameter| self.looked_at[**parameter].is_none_or(|last| last < index)).count();
        let mut taken = BTreeSet::new();
        while taken.len() < unseen {
            let Some((parameter, at)) = self.uses.pop_front() else { break };
            self.looked_at[parameter] = Some(at);
            taken.insert(parameter);
        }
        let room = i128::from(self.choices.live_parameters) - self.elements_here;
        let most = room.min(i128::from(self.choices.prefetch_bucket));
        let mut ahead = Vec::new();
        let mut elements = 0;
        while elements < most {
            let Some((parameter, at)) = self.uses.pop_front() else { break };
            self.looked_at[parameter] = self.looked_at[parameter].max(Some(at));
            if !self.here[parameter] && !ahead.contains(&parameter) {
                ahead.push(parameter);
                elements += i128::from(self.parameters[parameter].elements);
            }
        }
        self.gather(index, Urgency::Ahead, ahead);
    }

    fn gather(&mut self, index: usize, urgency: Urgency, parameters: Vec<usize>) {
        if parameters.is_empty() {
            return;
        }
        for parameter in &parameters {
            self.here[*parameter] = true;
            self.elements_here += i128::from(self.parameters[*parameter].elements);
        }
        self.gathers.push(Gather { pass: self.trace[index].pass, urgency, parameters });
    }

    fn release(&mut self, index: usize) {
        let released = match &self.known {
            Some(known) => known[index].clone(),
            None => self.releasable(index),
        };
        for parameter in released.iter().copied() {
            if std::mem::take(&mut self.here[parameter]) {
                self.elements_here -= i128::from(self.parameters[parameter].elements);
            }
        }
        self.decided.push(released);
    }

    /// What the module read, unless it stays, was fetched for a later module too, or is used again soon.
    fn releasable(&self, index: usize) -> Vec<usize> {
        let next = index + 1;
        let soon = self.used_soon(next);
        let goes = |parameter: &usize| {
            let fetched_for_later = self.looked_at[*parameter].is_some_and(|last| last > next);
            !self.parameters[*parameter].persistent && !fetched_for_later && !soon.contains(parameter)
        };
        self.trace[index].parameters.iter().copied().filter(goes).collect()
    }

    /// The parameters of the next modules, up to the distance within which nothing is released.
    fn used_soon(&self, next: usize) -> BTreeSet<usize> {
        let mut soon = BTreeSet::new();
        let mut passed = 0;
        for module in &self.trace[next..] {
            if passed >= self.choices.reuse_distance {
                break;
            }
            soon.extend(module.parameters.iter().copied());
            passed += module.parameters.iter().map(|parameter| self.parameters[*parameter].elements).sum::<u64>();
        }
        soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of 10 parameters each, forward and backward.
    fn gathered(choices: ModuleChoices) -> Vec<(Pass, Urgency, Vec<usize>)> {
        let parameters = [Parameter { elements: 10, persistent: false }; 2];
        let module = |pass, parameter| Module { pass, parameters: vec![parameter] };
        let trace = [(Pass::Forward, 0), (Pass::Forward, 1), (Pass::Backward, 1), (Pass::Backward, 0)]
            .map(|(p, i)| module(p, i));
        gathers(&parameters, &trace, choices, 1).into_iter().map(|g| (g.pass, g.urgency, g.parameters)).collect()
    }

    #[test]
    fn parameters_come_when_they_are_needed_or_ahead_and_stay_where_they_are_used_soon() {
        use Pass::{Backward, Forward};
        use Urgency::{Ahead, Needed};
        let nothing = ModuleChoices {
            persistent_parameters: 0,
            prefetch_bucket: 0,
            live_parameters: 100,
            reuse_distance: 0,
            quantised: false,
        };
        let alone = [(Forward, 0), (Forward, 1), (Backward, 1), (Backward, 0)].map(|(p, i)| (p, Needed, vec![i]));
        assert_eq!(gathered(nothing), alone);
        let kept = ModuleChoices { reuse_distance: 10, ..nothing };
        assert_eq!(gathered(kept), [&alone[..2], &alone[3..]].concat());
        let ahead = ModuleChoices { prefetch_bucket: 10, ..nothing };
        let expected = [(Forward, Ahead, vec![1]), (Forward, Ahead, vec![0])];
        let expected = [&alone[..1], &expected, &alone[2..3]].concat();
        assert_eq!(gathered(ahead), expected);
        let full = ModuleChoices { live_parameters: 10, ..ahead };
        assert_eq!(gathered(full), alone, "no room to fetch ahead");
    }
}
