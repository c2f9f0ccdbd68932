//! Keeps secrets out of records and of the commands that are shown: values of variables whose name says that they are secret. Records
//! hold no values either of what a launcher is told to hand to ranks and that they do not need.

use super::variables::is_recorded;

/// Stands in place of a value in a record.
pub const HIDDEN: &str = "set (hidden)";
/// Stands in place of a value in a command that is shown.
pub const HIDDEN_FROM_VIEW: &str = "(hidden)";

/// Parts of names whose values are secret.
const SECRET: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL"];
/// Flags of launchers after which a variable follows, as `NAME=VALUE`, or as two words.
const EXPORTS: [&str; 9] = ["-x", "--x", "-env", "-genv", "--env", "--genv", "-export", "--export", "--export-env"];
/// Before a word for the launcher in a command line of `commgauge run`.
const LAUNCHER_ARGUMENT: &str = "--launcher-arg=";
/// Ends of flags whose value is secret; `--prompt-tokens` is none.
const SECRET_FLAGS: [&str; 6] = ["-token", "-key", "-secret", "-password", "-passwd", "-credential"];

/// Whether the value of a variable is secret, by its name.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// The words of a command line for a record, without values of secret variables and of those that a launcher hands on and that records
/// do not hold. A list of words within a word (`--launch-command`, as JSON) is gone through too.
pub fn without_secrets(words: &[String]) -> Vec<String> {
    let is_harmless = |name: &str| is_recorded(name) && !is_secret(name);
    Hiding { instead: HIDDEN, is_harmless: &is_harmless }.words(words)
}

/// The words of a command line to show to the person who gave it: without values of secret variables.
pub fn to_show(words: &[String]) -> Vec<String> {
    Hiding { instead: HIDDEN_FROM_VIEW, is_harmless: &|name| !is_secret(name) }.words(words)
}

/// What is hidden, and how.
struct Hiding<'a> {
    instead: &'a str,
    /// Of variables that a launcher hands on.
    is_harmless: &'a dyn Fn(&str) -> bool,
}

impl Hiding<'_> {
    fn words(&self, words: &[String]) -> Vec<String> {
        let mut shown: Vec<String> = Vec::with_capacity(words.len());
        let mut hides_next = false;
        for (index, word) in words.iter().enumerate() {
            let before = index.checked_sub(1).map_or("", |before| value_of_flag(&words[before]));
            let is_value = std::mem::take(&mut hides_next);
            let inner = word.strip_prefix(LAUNCHER_ARGUMENT).filter(|_| is_value);
            let (flag, inner) = inner.map_or(("", &word[..]), |inner| (LAUNCHER_ARGUMENT, inner));
            shown.push(match serde_json::from_str::<Vec<String>>(inner) {
                _ if is_value => format!("{flag}{}", self.instead),
                Ok(inner) => serde_json::to_string(&self.words(&inner)).unwrap_or_else(|_| self.instead.to_owned()),
                Err(_) => self.word(before, word),
            });
            let name = value_of_flag(word);
            let names_variable = EXPORTS.contains(&before) && !name.contains('=') && !(self.is_harmless)(name);
            hides_next = !is_value && (is_secret_flag(word) || (names_variable && takes_two_words(before)));
        }
        shown
    }

    fn word(&self, before: &str, word: &str) -> String {
        let flag_of_word = word.split_once('=').filter(|(flag, _)| flag.starts_with('-'));
        match flag_of_word {
            // `--launcher-arg=-x` and `--export=A=1,B=2`
            Some((flag, value)) if EXPORTS.contains(&flag) => format!("{flag}={}", self.exported(flag, value)),
            Some((flag, _)) if is_secret_flag(flag) => format!("{flag}={}", self.instead),
            Some((flag, value)) => format!("{flag}={}", self.word(before, value)),
            None if EXPORTS.contains(&before) => self.exported(before, word),
            // `mca_base_env_list` of Open MPI has `;` between variables.
            None => {
                let is_shown = |name: &str| !is_variable(name) || !is_secret(name);
                let is_list =
                    word.split(';').all(|entry| entry.split_once('=').is_some_and(|(name, _)| is_variable(name)));
                let entries: Vec<&str> = if is_list { word.split(';').collect() } else { vec![word] };
                entries.into_iter().map(|entry| self.entry(entry, is_shown)).collect::<Vec<_>>().join(";")
            }
        }
    }

    /// What follows a flag of [`EXPORTS`]: srun takes a list, in which a value in single quotes may have commas.
    fn exported(&self, flag: &str, value: &str) -> String {
        if !flag.ends_with("export") {
            return self.entry(value, self.is_harmless);
        }
        let mut is_quoted = false;
        let entries = value.split(|c: char| {
            is_quoted ^= c == '\'';
            c == ',' && !is_quoted
        });
        entries.map(|entry| self.entry(entry, self.is_harmless)).collect::<Vec<_>>().join(",")
    }

    fn entry(&self, entry: &str, is_shown: impl Fn(&str) -> bool) -> String {
        match entry.split_once('=') {
            Some((name, _)) if !is_shown(name) => format!("{name}={}", self.instead),
            _ => entry.to_owned(),
        }
    }
}

/// The value of `--launcher-arg=VALUE`, which is a word for the launcher; other words as they are.
fn value_of_flag(word: &str) -> &str {
    word.strip_prefix(LAUNCHER_ARGUMENT).unwrap_or(word)
}

/// `-genv NAME VALUE` of MPICH and Intel MPI; `-x NAME` of Open MPI names a variable whose value nobody sees.
fn takes_two_words(flag: &str) -> bool {
    flag.ends_with("env")
}

fn is_secret_flag(word: &str) -> bool {
    word.starts_with('-') && SECRET_FLAGS.iter().any(|end| word.to_ascii_lowercase().ends_with(end))
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
            ("srun --export=S3_SECRET='x,y',HOME p", "srun --export=S3_SECRET=#,HOME p"),
            ("mpirun -x A_TOKEN=x,y;z p", "mpirun -x A_TOKEN=# p"),
            ("mpirun --mca mca_base_env_list A=1;A_TOKEN=x p", "mpirun --mca mca_base_env_list A=1;A_TOKEN=# p"),
            ("env DB_PASSWORD=x HWLOC=1 srun p", "env DB_PASSWORD=# HWLOC=1 srun p"),
            (
                "commgauge run s --launcher-arg=-x --launcher-arg=W=1",
                "commgauge run s --launcher-arg=-x --launcher-arg=W=#",
            ),
            ("commgauge run s --launcher-arg=AWS_KEY=1", "commgauge run s --launcher-arg=AWS_KEY=#"),
            (
                "commgauge run s --launcher-arg=-genv --launcher-arg=W --launcher-arg=1",
                "commgauge run s --launcher-arg=-genv --launcher-arg=W --launcher-arg=#",
            ),
            ("p --api-key abc --auth-token=abc --prompt-tokens 8", "p --api-key # --auth-token=# --prompt-tokens 8"),
            (r#"p --launch-command ["mpirun","-x","A_TOKEN=1"]"#, r#"p --launch-command ["mpirun","-x","A_TOKEN=#"]"#),
            ("p -f 2 --machine=m --key=value all_reduce", "p -f 2 --machine=m --key=value all_reduce"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let expected = expected.replace("--key=value", &format!("--key={HIDDEN}"));
            assert_eq!(without_secrets(&words).join(" "), expected.replace('#', HIDDEN), "{line}");
        }
    }

    #[test]
    fn a_shown_command_hides_what_is_secret_by_its_name_in_the_way_of_every_launcher() {
        for (line, expected) in [
            ("mpirun -x HF_TOKEN=a,b -x LD_LIBRARY_PATH=/opt p", "mpirun -x HF_TOKEN=# -x LD_LIBRARY_PATH=/opt p"),
            ("mpirun -x hf_token=abc -x A_KEY p", "mpirun -x hf_token=# -x A_KEY p"),
            ("mpiexec --env DB_PASSWD abc -env B 1 p", "mpiexec --env DB_PASSWD # -env B 1 p"),
            ("mpiexec -genv A_KEY abc -genv B_KEY=abc p", "mpiexec -genv A_KEY # -genv B_KEY=# p"),
            ("srun --export=ALL,A=b,A_CREDENTIAL=x p", "srun --export=ALL,A=b,A_CREDENTIAL=# p"),
            ("env MY_SECRET=x MPIR_CVAR=1 mpiexec p", "env MY_SECRET=# MPIR_CVAR=1 mpiexec p"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(to_show(&words).join(" "), expected.replace('#', HIDDEN_FROM_VIEW), "{line}");
        }
    }
}
