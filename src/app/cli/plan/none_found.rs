//! Why no layout was found, and what to do about it.

use commgauge_analysis::planner::search::{Found, Question};

/// The reason as a sentence.
pub(super) fn none_found(question: &Question, found: &Found) -> String {
    if found.considered == 0 {
        return none_legal(question, found);
    }
    if !found.unpriced.is_empty() {
        return none_priced(question, found);
    }
    let Some(nearest) = &found.nearest else { return "there is no layout".to_owned() };
    let (needs, has) = (nearest.memory.0, question.gpu_memory.0);
    format!(
        "none of {} layouts fits into {:.1} GB: the nearest is {}, ZeRO {}, micro-batch {}, recompute {}, which needs {:.1} GB, \
         {:.1} GB too much; take more GPUs, a shorter sequence or a smaller batch, or price it with --only",
        found.considered,
        has as f64 / 1e9,
        nearest.degrees.name(),
        nearest.zero_stage,
        nearest.micro_batch,
        nearest.recompute,
        needs as f64 / 1e9,
        needs.saturating_sub(has) as f64 / 1e9,
    )
}

fn none_legal(question: &Question, found: &Found) -> String {
    let rules: Vec<String> = found.illegal.iter().map(|(rule, count)| format!("{rule} ({count})")).collect();
    let zero = &question.only.zero_stage;
    let shares = !zero.is_empty() && !zero.contains(&0);
    let why = match (rules.is_empty(), shares) {
        (false, _) => format!("degrees that break a rule: {}", rules.join("; ")),
        (true, true) => {
            "degrees must multiply to the GPUs, and ZeRO stages above 0 need several replicas (dp or cp above 1)"
                .to_owned()
        }
        (true, false) => "no degrees multiply to the GPUs".to_owned(),
    };
    let among = if question.only.is_anything() { " among those that are asked for" } else { "" };
    format!("no layout of {} on {} GPUs is legal{among}; {why}", question.model.shown_name(), question.gpus)
}

fn none_priced(question: &Question, found: &Found) -> String {
    let reasons = found.unpriced.iter().take(8).map(|(reason, count)| format!("{reason} ({count} layouts)"));
    let hint = match question.rates.calibrated() {
        true => "; measure what is missing, or name --machine FILE too for published rates",
        false => "",
    };
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    format!("none of the {} layouts that fit has a price: {reasons}{hint}", found.feasible)
}
