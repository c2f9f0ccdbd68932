//! Reads how a vector form divides its elements, from a suite's `splits` or the flag of that name.

use super::document::{Item, Table};
use commgauge_base::error::Result;
use commgauge_base::geometry::{MOST_EXPERTS, Routed, Routing, Splits};

const ACCEPTED: &str = "accepted: equal, skewed:EXPONENT (above 0, up to 8), given:3,1,1 or, for all_to_all_v, \
                        routed:ROUTING,experts=COUNT,k=COUNT[,hidden=COUNT][,capacity=FACTOR][,seed=NUMBER][,back] with ROUTING \
                        uniform, random, zipf:EXPONENT or hot:SHARE";
/// More elements than a token has anywhere.
const MOST_HIDDEN: u64 = 1 << 24;

/// Reads one item of a suite's `splits`.
pub(super) fn read_splits(item: Item) -> Result<Splits> {
    if !item.is_table() {
        return item.parsed(parse_splits);
    }
    let mut table = item.table()?;
    let splits = match (table.take("given"), table.take("skewed"), table.take("routed")) {
        (Some(given), None, None) => {
            let weights = given.items()?.iter().map(|item| item.whole(0..=u64::MAX)).collect::<Result<_>>()?;
            Splits::Given(weights)
        }
        (None, Some(skewed), None) => Splits::Skewed { exponent: skewed.fraction(0.0, 8.0)? },
        (None, None, Some(routed)) => read_routed(routed.table()?)?,
        _ => {
            let routed = "{ routed = { routing = \"zipf:1.2\", experts = 8, experts_per_token = 2 } }";
            let accepted = format!("accepted: {{ given = [3, 1, 1] }}, {{ skewed = 1.0 }} or {routed}");
            return Err(table.place.wrong(accepted));
        }
    };
    table.finish()?;
    Ok(splits)
}

fn read_routed(mut table: Table) -> Result<Splits> {
    let place = table.place.clone();
    let routing: Routing = table.require("routing", "how tokens choose, such as \"zipf:1.2\"")?.parsed(str::parse)?;
    let most = 1..=MOST_EXPERTS;
    let routed = Routed {
        routing,
        experts: table.require("experts", "the experts of a layer, such as 8")?.whole(most.clone())?,
        experts_per_token: table.require("experts_per_token", "how many a token goes to, such as 2")?.whole(most)?,
        elements_per_token: table.take("hidden").map(|item| item.whole(1..=MOST_HIDDEN)).transpose()?.unwrap_or(1),
        capacity_factor: table.take("capacity_factor").map(|item| item.fraction(0.0, 1e6)).transpose()?,
        seed: table.take("seed").map(|item| item.whole(0..=u64::MAX)).transpose()?.unwrap_or(1),
        back: table.take("back").map(|item| item.truth()).transpose()?.unwrap_or(false),
    };
    table.finish()?;
    // Whether the experts can be divided evenly is checked for the groups that run the case.
    routed.check(1).map_err(|problem| place.wrong(problem))?;
    Ok(Splits::Routed(routed))
}

/// Reads `equal`, `skewed:1.5`, `given:3,1,1` or `routed:zipf:1.2,experts=8,k=2`.
pub fn parse_splits(text: &str) -> std::result::Result<Splits, String> {
    let wrong = || format!("found `{text}`; {ACCEPTED}");
    match text.split_once(':') {
        None if text == "equal" => Ok(Splits::Equal),
        Some(("skewed", exponent)) => match exponent.parse() {
            Ok(exponent) if exponent > 0.0 && exponent <= 8.0 => Ok(Splits::Skewed { exponent }),
            _ => Err(wrong()),
        },
        Some(("given", weights)) => {
            let weights = weights.split(',').map(str::trim).map(str::parse);
            weights.collect::<std::result::Result<_, _>>().map(Splits::Given).map_err(|_| wrong())
        }
        Some(("routed", rest)) => parse_routed(rest).map_err(|problem| format!("{problem}, in `{text}`; {ACCEPTED}")),
        _ => Err(wrong()),
    }
}

fn parse_routed(text: &str) -> std::result::Result<Splits, String> {
    let (routing, rest) = text.split_once(',').unwrap_or((text, ""));
    let routing: Routing = routing.trim().parse().map_err(|_| format!("found routing `{routing}`"))?;
    let (mut experts, mut experts_per_token) = (None, None);
    let mut routed = Routed {
        experts: 0,
        experts_per_token: 0,
        elements_per_token: 1,
        routing,
        capacity_factor: None,
        seed: 1,
        back: false,
    };
    for word in rest.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let whole = |most: u64| {
            let number = value.parse().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("found `{word}`, where a whole number up to {most} is meant"))
        };
        match key {
            "experts" => experts = Some(whole(MOST_EXPERTS)?),
            "k" => experts_per_token = Some(whole(MOST_EXPERTS)?),
            "hidden" => routed.elements_per_token = whole(MOST_HIDDEN)?,
            "seed" => routed.seed = whole(u64::MAX)?,
            "capacity" => {
                let factor = value.parse().map_err(|_| format!("found `{word}`, where a number is meant"))?;
                routed.capacity_factor = Some(factor);
            }
            "back" if value.is_empty() => routed.back = true,
            _ => return Err(format!("found `{word}`")),
        }
    }
    routed.experts = experts.ok_or("experts=COUNT is missing")?;
    routed.experts_per_token = experts_per_token.ok_or("k=COUNT is missing")?;
    routed.check(1)?;
    Ok(Splits::Routed(routed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_routings_are_refused_with_the_valid_ones() {
        for (text, expected) in [
            ("routed:zipf:1", "experts=COUNT is missing"),
            ("routed:zipf:1,experts=8", "k=COUNT is missing"),
            ("routed:zipf:9,experts=8,k=2", "found routing `zipf:9`"),
            ("routed:even,experts=8,k=2", "found routing `even`"),
            ("routed:uniform,experts=8,k=9", "found 9 experts for each token; accepted: 1 to 8, all of them"),
            ("routed:uniform,experts=0,k=1", "found 0 experts; accepted: 1 to 65536"),
            ("routed:uniform,experts=70000,k=1", "a whole number up to 65536 is meant"),
            ("routed:hot:0.6,experts=8,k=2", "up to 1/2 of all choices"),
            ("routed:hot:0.6,experts=1,k=1", "a hot expert needs others beside it"),
            ("routed:uniform,experts=8,k=2,hidden=0", "found tokens of 0 elements"),
            ("routed:uniform,experts=8,k=2,capacity=0", "found a capacity factor of 0; accepted: above 0"),
            ("routed:uniform,experts=8,k=2,capacity=nan", "found a capacity factor of NaN"),
            ("routed:uniform,experts=8,k=2,bak", "found `bak`"),
            ("routed:uniform,experts=8,k=2,back=1", "found `back=1`"),
            ("routed:random,experts=2048,k=2", "random routing of 2048 experts on 1 ranks; accepted: up to 1024"),
            ("uneven", "found `uneven`"),
        ] {
            let problem = parse_splits(text).unwrap_err();
            assert!(problem.contains(expected) && problem.contains("accepted: equal, skewed"), "{text}: {problem}");
        }
    }

    #[test]
    fn text_and_table_forms_are_equivalent() {
        let text = "routed:hot:0.25,experts=8,k=2,hidden=16,capacity=1.25,seed=7,back";
        let table = "{ routed = { routing = 'hot:0.25', experts = 8, experts_per_token = 2, hidden = 16, \
                     capacity_factor = 1.25, seed = 7, back = true } }";
        let sweep = |splits: &str| {
            let text = format!("[[sweep]]\ncollectives = 'all_to_all_v'\nbytes = '1KiB'\nsplits = [{splits}]\n");
            crate::config::Suite::parse(std::path::Path::new("s.toml"), &text)
                .map(|suite| suite.sweeps[0].splits.clone())
        };
        let read = sweep(table).unwrap();
        assert_eq!(read, [parse_splits(text).unwrap()]);
        assert_eq!(read, sweep(&format!("'{text}'")).unwrap());
        for (splits, expected) in [
            ("{ routed = { experts = 8 } }", "`routing` is missing"),
            ("{ routed = { routing = 'random', experts = 8, experts_per_token = 9 } }", "accepted: 1 to 8"),
            ("{ routed = { routing = 'random', experts = 8, experts_per_token = 2, k = 1 } }", "k"),
            ("{ skewed = 1, routed = {} }", "accepted: { given = [3, 1, 1] }, { skewed = 1.0 } or { routed ="),
        ] {
            let message = sweep(splits).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("s.toml"), "{message}");
        }
    }
}
