//! Keeps secrets out of records: values of variables whose name says that they are secret, and of those that a launcher is told
//! to hand to ranks and that no record needs.

use super::variables::is_recorded;

/// Stands in place of a value.
pub const HIDDEN: &str = "set (hidden)";

/// Parts of names whose values are secret.
const SECRET: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL"];
/// Flags of launchers after which a variable follows, as `NAME=VALUE`, or as two words.
const EXPORTS: [&str; 9] = ["-x", "--x", "-env", "-genv", "--env", "--genv", "-export", "--export", "--export-env"];
/// Ends of flags whose value is secret; `--prompt-tokens` is none.
const SECRET_FLAGS: [&str; 6] = ["-token", "-key", "-secret", "-password", "-passwd", "-credential"];

/// Whether the value of a variable is secret, by its name.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// The words of a command line without secret values. A list of words within a word (`--launch-command`, as JSON) is gone
/// through too.
pub fn without_secrets(words: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::with_capacity(words.len());
    let mut hides_next = false;
    for (index, word) in words.iter().enumerate() {
        let before = index.checked_sub(1).map_or("", |before| words[before].as_str());
        let is_value = std::mem::take(&mut hides_next);
        shown.push(match serde_json::from_str::<Vec<String>>(word) {
            _ if is_value => HIDDEN.to_owned(),
            Ok(inner) => serde_json::to_string(&without_secrets(&inner)).unwrap_or_else(|_| HIDDEN.to_owned()),
            Err(_) => shown_word(before, word),
        });
        let names_variable = EXPORTS.contains(&before) && !word.contains('=') && !is_harmless(word);
        hides_next = !is_value && (is_secret_flag(word) || (names_variable && takes_two_words(before)));
    }
    shown
}

/// `-genv NAME VALUE` of MPICH and Intel MPI; `-x NAME` of Open MPI names a variable whose value nobody sees.
fn takes_two_words(flag: &str) -> bool {
    flag.ends_with("env")
}

fn is_secret_flag(word: &str) -> bool {
    word.starts_with('-') && SECRET_FLAGS.iter().any(|end| word.to_ascii_lowercase().ends_with(end))
}

fn is_harmless(name: &str) -> bool {
    is_recorded(name) && !is_secret(name)
}

fn shown_word(before: &str, word: &str) -> String {
    let flag_of_word = word.split_once('=').filter(|(flag, _)| flag.starts_with('-'));
    match flag_of_word {
        // `--launcher-arg=-x` and `--export=A=1,B=2`
        Some((flag, value)) if EXPORTS.contains(&flag) => format!("{flag}={}", shown_list(value)),
        Some((flag, _)) if is_secret_flag(flag) => format!("{flag}={HIDDEN}"),
        Some((flag, value)) => format!("{flag}={}", shown_word(before.rsplit('=').next().unwrap_or(before), value)),
        None if EXPORTS.contains(&before.rsplit('=').next().unwrap_or(before)) => shown_list(word),
        None => match word.split_once('=') {
            Some((name, _)) if is_variable(name) && is_secret(name) => format!("{name}={HIDDEN}"),
            _ => word.to_owned(),
        },
    }
}

/// `NAME=VALUE,NAME=VALUE`, of which only the values of variables stay that records hold anyway.
fn shown_list(list: &str) -> String {
    let shown = list.split(',').map(|entry| match entry.split_once('=') {
        Some((name, _)) if !is_harmless(name) => format!("{name}={HIDDEN}"),
        _ => entry.to_owned(),
    });
    shown.collect::<Vec<_>>().join(",")
}

fn is_variable(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_variables_and_of_what_launchers_hand_on_are_hidden() {
        for (line, expected) in [
            ("mpirun -x HF_TOKEN=abc -x NCCL_ALGO=Ring p", "mpirun -x HF_TOKEN=# -x NCCL_ALGO=Ring p"),
            ("mpirun -x MY_OWN=abc -x HOME p -b 8", "mpirun -x MY_OWN=# -x HOME p -b 8"),
            ("mpiexec -genv A_KEY abc -genv NCCL_ALGO Ring p", "mpiexec -genv A_KEY # -genv NCCL_ALGO Ring p"),
            ("srun --export=ALL,A=b,NCCL_ALGO=Ring --mpi=pmix p", "srun --export=ALL,A=#,NCCL_ALGO=Ring --mpi=pmix p"),
            ("srun --export ALL,S3_SECRET=x p", "srun --export ALL,S3_SECRET=# p"),
            ("env DB_PASSWORD=x HWLOC=1 srun p", "env DB_PASSWORD=# HWLOC=1 srun p"),
            (
                "commgauge run s --launcher-arg=-x --launcher-arg=W=1",
                "commgauge run s --launcher-arg=-x --launcher-arg=W=#",
            ),
            ("commgauge run s --launcher-arg=AWS_KEY=1", "commgauge run s --launcher-arg=AWS_KEY=#"),
            ("p --api-key abc --auth-token=abc --prompt-tokens 8", "p --api-key # --auth-token=# --prompt-tokens 8"),
            (r#"p --launch-command ["mpirun","-x","A_TOKEN=1"]"#, r#"p --launch-command ["mpirun","-x","A_TOKEN=#"]"#),
            ("p -f 2 --machine=m --key=value all_reduce", "p -f 2 --machine=m --key=value all_reduce"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let expected = expected.replace("--key=value", &format!("--key={HIDDEN}"));
            assert_eq!(without_secrets(&words).join(" "), expected.replace('#', HIDDEN), "{line}");
        }
    }
}
