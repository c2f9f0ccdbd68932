//! The sentence about a number that an axis does not divide.

/// The sentence for a degree that does not divide, with the nearest valid ones.
pub fn must_divide(axis: &str, degree: u64, number: u64, what: &str, field: &str, model: &str) -> String {
    let divides = |degree: &u64| number.is_multiple_of(*degree);
    let below = (1..degree.min(number + 1)).rev().find(divides);
    let above = (degree + 1..=number).find(divides);
    let nearest: Vec<_> = below.into_iter().chain(above).map(|degree| degree.to_string()).collect();
    format!(
        "{axis} = {degree} does not divide the {number} {what} of {model} ({field}); nearest that do: {}",
        nearest.join(", ")
    )
}
