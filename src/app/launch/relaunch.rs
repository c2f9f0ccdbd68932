//! Repeats the launch of a record: with the same launcher and launcher arguments, and new arguments for the program.

use super::command::{LaunchCommand, STOP_SIGNAL};
use commgauge_model::record::header::Variable;
use std::path::Path;

/// The part of a launch command before the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherPart {
    environment: Vec<Variable>,
    pub program: String,
    arguments: Vec<String>,
}

impl LauncherPart {
    /// The part of a recorded launch command before the launched program of this name; `None` where it has no such program.
    pub fn of(words: &[String], launched: &str) -> Option<LauncherPart> {
        let mut rest = words;
        let mut environment = Vec::new();
        if let Some(after) = rest.strip_prefix(&["env".to_owned()]) {
            rest = after;
            while let Some((name, value)) = rest.first().and_then(|word| word.split_once('=')) {
                environment.push(Variable::new(name, value));
                rest = &rest[1..];
            }
        }
        let (program, rest) = rest.split_first()?;
        let is_launched = |word: &String| Path::new(word).file_name().is_some_and(|name| name == launched);
        let at = rest.iter().position(is_launched)?;
        Some(LauncherPart { environment, program: program.clone(), arguments: rest[..at].to_vec() })
    }

    /// The command that starts a program in the same way.
    pub fn command(&self, launched: String, words: Vec<String>) -> LaunchCommand {
        let arguments = self.arguments.iter().cloned().chain([launched]).chain(words).collect();
        let (environment, program) = (self.environment.clone(), self.program.clone());
        LaunchCommand { environment, program, arguments, stop_signal: STOP_SIGNAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn launcher_arguments_are_reused_and_program_arguments_replaced() {
        let old = words("env SLURM_HOSTFILE=/h A=b=c srun --ntasks=4 --mpi=pmix /old/commgauge-sweep all_reduce -b 8");
        let part = LauncherPart::of(&old, "commgauge-sweep").unwrap();
        let relaunched = part.command("/new/commgauge-sweep".into(), words("all_reduce --resume r"));
        let expected =
            "env SLURM_HOSTFILE=/h A=b=c srun --ntasks=4 --mpi=pmix /new/commgauge-sweep all_reduce --resume r";
        assert_eq!(relaunched.words().join(" "), expected);
    }

    #[test]
    fn a_command_without_the_program_has_no_such_part() {
        for old in ["", "env", "env A=b", "mpirun", "mpirun -n 4 ./other", "commgauge-sweep"] {
            assert_eq!(LauncherPart::of(&words(old), "commgauge-sweep"), None, "{old}");
        }
        assert_eq!(LauncherPart::of(&[], "commgauge-sweep"), None);
    }
}
