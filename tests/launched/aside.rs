//! Idle ranks, which are in no group of an axis, on real ranks: they are never slowest, late or unreliable, and the
//! data of the others are checked. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{Ran, SUITE, launcher, lines, of_kind, record_in};

const TIED: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512, "tie_word_embeddings": true}"#;

#[test]
fn inner_stages_are_idle_while_the_first_and_the_last_share_an_embedding() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tiny")).unwrap();
    std::fs::write(folder.path().join("tiny/config.json"), TIED).unwrap();
    let suite = folder.path().join("suite.toml");
    let text = "[measure]\niterations = 20\nwarm_up_iterations = 2\nreplicates = 1\n[model]\nconfig = 'tiny/config.json'\n\
                [training]\nsequence = 64\nmicro_batches = 2\n[layout]\npp = 4\nstyles = ['vocabulary']\n";
    std::fs::write(&suite, text).unwrap();
    let record = record_in(&folder);
    let mut command = launcher(4);
    command.arg(SUITE).arg(&suite).args(["--quiet", "--record"]).arg(&record);
    Ran::of(&mut command, 90).ended_with(0);

    let lines = lines(&record);
    let cases = of_kind(&lines, "case");
    let shared: Vec<_> = cases.iter().filter(|case| case["name"].as_str().unwrap().starts_with("embedding/")).collect();
    assert_eq!(shared.len(), 2, "streaming and isolated");
    for case in shared {
        assert_eq!(case["outcome"]["status"], "measured", "{case}");
        assert_eq!(case["outcome"]["verified"], true, "{case}");
        for column in ["slowest_rank", "last_rank"] {
            let named = case["samples"][column].as_array().into_iter().flatten();
            assert!(named.clone().all(|rank| *rank == 0 || *rank == 3), "{case}");
        }
        assert!(!case["samples"]["slowest_rank"].as_array().unwrap().is_empty(), "{case}");
    }
}
