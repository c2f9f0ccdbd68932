//! A program copied without its source tree has its suites, models and machines embedded, a file in the working
//! directory takes precedence, and the output names the one in use.

use crate::offline::{commgauge, text};
use std::fs;
use std::path::Path;
use std::process::Output;

/// Runs in a folder; the text on stdout and on stderr.
fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = commgauge(folder, arguments);
    (status.code().expect("not killed"), text(&stdout), text(&stderr))
}

fn answer(folder: &Path, arguments: &[&str]) -> (String, String) {
    let (code, out, errors) = run(folder, arguments);
    assert_eq!(code, 0, "{arguments:?}: {errors}");
    (out, errors)
}

#[test]
fn in_an_empty_folder_everything_with_a_name_is_there() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, names) in [
        ("suites", &["quick", "qualify", "llama-3-8b"][..]),
        ("models", &["llama-3-8b", "deepseek-v3", "gpt2"]),
        ("machines", &["h200-nvswitch-ndr", "two-hosts-1gbit"]),
    ] {
        let (list, _) = answer(folder.path(), &["show", kind, "--width", "100"]);
        assert!(names.iter().all(|name| list.lines().any(|line| line.starts_with(name))), "{list}");
        assert!(list.contains("All are embedded") && !list.contains("cannot be used"), "{list}");
        let (json, _) = answer(folder.path(), &["show", kind, "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        for one in json[kind].as_array().unwrap() {
            assert!(one["file"].as_str().unwrap().starts_with("embedded:suites/"), "{one}");
        }
    }
    for (arguments, said) in [
        (&["show", "model", "llama-3-8b"][..], "embedded:suites/models/llama-3-8b/config.json"),
        (
            &["run", "quick", "--backend", "simulated", "--machine", "two-hosts-1gbit", "--dry-run"],
            "suite quick (embedded) on 4 ranks",
        ),
        (
            &["run", "embedded:suites/gpu-check/data.toml", "--dry-run", "--backend", "simulated"],
            "(embedded) on 4 ranks",
        ),
        (&["simulate", "smoke", "--machine", "two-hosts-1gbit", "--nodes", "2"], "of two-hosts-1gbit"),
        (&["plan", "validate"], "megatron-table-1"),
    ] {
        let (out, _) = answer(folder.path(), arguments);
        assert!(out.contains(said), "{arguments:?}: {out}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written by looking");
}

#[test]
fn a_copy_that_is_shown_is_the_file_itself_and_runs_as_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    for (kind, name, file) in [
        ("suite", "smoke", "smoke.toml"),
        ("model --config", "gpt-7.5b", "models/gpt-7.5b/config.json"),
        ("machine", "two-hosts-1gbit", "machines/two-hosts-1gbit.toml"),
    ] {
        let words: Vec<&str> = ["show"].into_iter().chain(kind.split(' ')).chain([name]).collect();
        let (shown, errors) = answer(folder.path(), &words);
        assert_eq!(shown, fs::read_to_string(source.join(file)).unwrap(), "{name}");
        assert_eq!(errors, "");
        fs::write(folder.path().join(format!("my-{kind}.toml")), shown).unwrap();
    }
    let simulate = |suite: &str, machine: &str, record: &str| {
        let (out, _) = answer(folder.path(), &["simulate", suite, "--machine", machine, "--nodes", "2", "-o", record]);
        let lines = fs::read_to_string(folder.path().join(record)).unwrap();
        let header: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        // The title, the problem, and the duration; below are the records' own names.
        let out = out.lines().take(5).collect::<Vec<_>>().join("\n");
        (out, header["suite"]["sha256"].clone(), header["suite"]["path"].clone())
    };
    let embedded = simulate("smoke", "two-hosts-1gbit", "embedded.jsonl");
    let copied = simulate("my-suite.toml", "my-machine.toml", "copied.jsonl");
    assert_eq!((&embedded.0, &embedded.1), (&copied.0, &copied.1));
    assert_eq!((embedded.2.as_str(), copied.2.as_str()), (Some("embedded:suites/smoke.toml"), Some("my-suite.toml")));
    let (report, _) = answer(folder.path(), &["report", "embedded.jsonl"]);
    assert!(report.contains("smoke (embedded) (sha256 "), "{report}");
}

#[test]
fn a_file_of_the_working_directory_wins_and_the_output_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let small =
        "[[sweep]]\ncollectives = 'all_reduce'\nbytes = '1KiB'\nplacements = 'in-place'\ncadences = 'streaming'\n";
    let dry = ["run", "quick", "--backend", "simulated", "--machine", "two-hosts-1gbit", "--dry-run"];
    let (_, errors) = answer(folder.path(), &dry);
    assert_eq!(errors, "suite: quick (embedded)\nmachine: two-hosts-1gbit (embedded)\n");
    // The nearest wins: first suites/, then the folder itself.
    fs::create_dir_all(folder.path().join("suites/machines")).unwrap();
    let (machine, _) = answer(folder.path(), &["show", "machine", "two-hosts-1gbit"]);
    fs::write(folder.path().join("suites/machines/two-hosts-1gbit.toml"), machine).unwrap();
    for file in ["suites/quick.toml", "quick.toml"] {
        fs::write(folder.path().join(file), small).unwrap();
        let (out, errors) = answer(folder.path(), &dry);
        assert!(out.contains("1 case x"), "{out}");
        let machine = "machine: two-hosts-1gbit (suites/machines/two-hosts-1gbit.toml)";
        assert_eq!(errors, format!("suite: quick ({file})\n{machine}\n"));
    }
    let (list, _) = answer(folder.path(), &["show", "suites"]);
    assert!(list.contains("Files here: quick.toml; the others are embedded."), "{list}");
    // The embedded one can still be named, and is what is shown.
    let (shown, errors) = answer(folder.path(), &["show", "suite", "quick"]);
    assert!(shown.len() > 10 * small.len() && errors.contains("means quick.toml, which wins"), "{errors}");
    let mut named = dry;
    named[1] = "embedded:suites/quick.toml";
    assert!(
        answer(folder.path(), &named)
            .0
            .starts_with("runs in this process, without a launcher\nsuite quick (embedded) on 4")
    );
}

#[test]
fn a_model_of_the_working_directory_wins_in_an_embedded_suite_too() {
    let folder = tempfile::tempdir().unwrap();
    let hash = |record: &str| {
        answer(folder.path(), &["simulate", "serving", "--machine", "two-hosts-1gbit", "--nodes", "2", "-o", record]);
        let lines = fs::read_to_string(folder.path().join(record)).unwrap();
        let header: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        header["suite"]["sha256"].as_str().unwrap().to_owned()
    };
    let before = hash("before.jsonl");
    let (model, _) = answer(folder.path(), &["show", "model", "llama-3-8b", "--config"]);
    fs::create_dir_all(folder.path().join("suites/models/llama-3-8b")).unwrap();
    let file = folder.path().join("suites/models/llama-3-8b/config.json");
    fs::write(&file, &model).unwrap();
    assert_eq!(hash("same.jsonl"), before);
    fs::write(&file, model.replace("14336", "7168")).unwrap();
    assert_ne!(hash("other.jsonl"), before);
    let (out, _) = answer(folder.path(), &["show", "model", "llama-3-8b"]);
    assert!(out.contains("suites/models/llama-3-8b/config.json") && !out.contains("embedded:"), "{out}");
}

#[test]
fn an_unknown_name_is_refused_with_what_may_have_been_meant() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.toml"), "").unwrap();
    for (arguments, expected) in [
        (&["show", "suite", "quik"][..], "did you mean quick?"),
        (&["show", "model", "llama-8b", "--config"], "did you mean llama-3-8b or "),
        (&["show", "machine", "nothing-like-it"], "`commgauge show machines` names all 26"),
        (&["show", "suite", "mine"], "there is no embedded suite `mine`; mine.toml is a file here"),
        (&["show", "suite", "../quick"], "accepted: a path, or the name of a suite; did you mean quick?"),
        (&["show", "sweets", "quick"], "unrecognized subcommand 'sweets'"),
        (
            &["run", "quik", "--dry-run"],
            "no quik.toml, no suites/quik.toml here, and none is embedded; did you mean quick?",
        ),
        (&["run", "suites/quick.toml", "--dry-run"], "there is no file `suites/quick.toml`"),
        (&["run", "mine", "--dry-run"], "mine.toml: the file: names nothing to run"),
        (&["show", "model", "lama-3-8b"], "did you mean llama-3-8b"),
        (&["simulate", "quick", "--machine", "h200", "--nodes", "2"], "did you mean h200-nvswitch-ndr?"),
    ] {
        let (code, out, errors) = run(folder.path(), arguments);
        assert!(code == 2 && out.is_empty() && errors.contains(expected), "{arguments:?}: {code} {out} {errors}");
    }
}
