//! Real changes are found at the right run, and noise of any shape raises no more alarms than stated.

use super::*;
use rand::RngExt;

const LEVEL: f64 = 0.05;

/// How run-to-run noise is spread, with a standard deviation of about 1.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Normal,
    /// Most runs near the best time, some much slower.
    Skewed,
    /// Two states of the machine.
    Bimodal,
}

fn deviate(shape: Shape, random: &mut Xoshiro256PlusPlus) -> f64 {
    let uniform: f64 = random.random_range(f64::EPSILON..1.0);
    let other: f64 = random.random_range(0.0..1.0);
    let normal = (-2.0 * uniform.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    match shape {
        Shape::Normal => normal,
        Shape::Skewed => -uniform.ln() - 1.0,
        Shape::Bimodal => f64::from(u8::from(other < 0.3)) * 2.0 + 0.2 * normal,
    }
}

/// Rows that share a part of their noise, as rows of one run do.
fn noise(rows: usize, runs: usize, sigma: f64, shape: Shape, seed: u64) -> Vec<Vec<Option<f64>>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let shared: Vec<f64> = (0..runs).map(|_| deviate(shape, &mut random)).collect();
    let row = |_| shared.iter().map(|shared| Some(sigma * (0.5 * shared + deviate(shape, &mut random)))).collect();
    (0..rows).map(row).collect()
}

fn stepped(mut row: Vec<Option<f64>>, from: usize, step: f64) -> Vec<Option<f64>> {
    row[from..].iter_mut().flatten().for_each(|value| *value += step);
    row
}

fn runs_of(found: &Found, row: usize) -> Vec<usize> {
    found.rows[row].iter().map(|point| point.run).collect()
}

#[test]
fn nothing_few_runs_and_equal_runs_show_no_change() {
    assert!(changes(&[], LEVEL, 0.03).rows.is_empty());
    for row in [vec![], vec![Some(1.0)], vec![Some(1.0); 30], vec![None; 30], vec![Some(0.0), Some(1.0), Some(2.0)]] {
        assert_eq!(runs_of(&changes(std::slice::from_ref(&row), LEVEL, 0.03), 0), [0; 0], "{row:?}");
    }
}

#[test]
fn a_step_is_found_at_its_run_and_other_rows_have_none() {
    let mut rows = noise(20, 24, 0.01, Shape::Skewed, 7);
    rows[3] = stepped(rows[3].clone(), 15, 0.06);
    rows[8] = stepped(stepped(rows[8].clone(), 8, 0.08), 16, -0.08);
    rows[9] = stepped(rows[9].clone(), 12, 0.02);
    let found = changes(&rows, LEVEL, 0.03);
    assert_eq!(runs_of(&found, 3), [15]);
    assert_eq!(runs_of(&found, 8), [8, 16]);
    let others: usize = (0..20).filter(|row| ![3, 8].contains(row)).map(|row| found.rows[row].len()).sum();
    assert_eq!(others, 0, "a step of 2 % does not matter");
}

#[test]
fn a_step_of_one_row_among_many_is_found_from_three_runs_on() {
    let mut rows = noise(100, 12, 0.01, Shape::Normal, 5);
    rows[70] = stepped(rows[70].clone(), 9, 0.15);
    let found = changes(&rows, LEVEL, 0.03);
    let changed: Vec<usize> = (0..100).filter(|row| !found.rows[*row].is_empty()).collect();
    assert_eq!((changed, runs_of(&found, 70)), (vec![70], vec![9]));
}

#[test]
fn runs_without_the_row_do_not_hide_a_change() {
    let mut row = stepped(noise(1, 30, 0.005, Shape::Normal, 3).remove(0), 14, 0.10);
    for missing in [2, 9, 13, 20, 29] {
        row[missing] = None;
    }
    let found = runs_of(&changes(&[row], LEVEL, 0.03), 0);
    assert!(found == [13] || found == [14], "{found:?}");
}

#[test]
fn one_outlier_run_is_no_change() {
    let mut rows = noise(5, 30, 0.01, Shape::Normal, 11);
    rows[2][17] = Some(1.0);
    assert!(changes(&rows, LEVEL, 0.03).rows.iter().all(Vec::is_empty));
}

#[test]
fn noise_of_any_shape_raises_alarms_no_more_often_than_stated() {
    // A step of any height counts here, so that only the significance is tested.
    let trials = if cfg!(debug_assertions) { 20 } else { 1000 };
    for shape in [Shape::Normal, Shape::Skewed, Shape::Bimodal] {
        let alarms = (0..trials)
            .filter(|seed| {
                let (rows, runs) = (5, 12 + (*seed % 16) as usize);
                changes(&noise(rows, runs, 0.02, shape, *seed), LEVEL, 0.0).rows.iter().any(|row| !row.is_empty())
            })
            .count();
        // Three standard deviations above the stated level.
        let most = trials as f64 * LEVEL + 3.0 * (trials as f64 * LEVEL * (1.0 - LEVEL)).sqrt();
        assert!((alarms as f64) <= most, "{shape:?}: {alarms} of {trials}");
    }
}

#[test]
fn a_change_in_a_long_series_is_found_at_its_run_and_in_time() {
    let mut rows = noise(20, 2000, 0.01, Shape::Normal, 8);
    rows[3] = stepped(rows[3].clone(), 1234, 0.05);
    // The newest runs are searched one by one.
    rows[7] = stepped(rows[7].clone(), 1990, 0.08);
    let found = changes(&rows, LEVEL, 0.03);
    let changed: Vec<usize> = (0..20).filter(|row| !found.rows[*row].is_empty()).collect();
    assert_eq!((changed, runs_of(&found, 3), runs_of(&found, 7)), (vec![3, 7], vec![1234], vec![1990]));
}
