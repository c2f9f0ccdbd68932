//! What a user's own recipe says of a step: a launch script, a file of settings or the command line of a server, read by the table of
//! its framework.
//!
//! What each setting means is data: `suites/recipes/NAME.toml`. Nothing of a recipe is executed, and nothing is guessed.

mod facts;
mod settings;
mod shell;

use super::document::{Item, Place, Table};
use super::model::Model;
use super::shipped::read_text;
use super::step::{Framework, MOST_RANKS};
use commgauge_base::error::Result;
use commgauge_base::visible::{ShownPath, visible};
use facts::{FRAMEWORK, Fact, Facts, Row};
use settings::Written;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// No recipe is longer.
const LONGEST_BYTES: usize = 1 << 20;

/// Words of a setting's name by which it may be about calls: one that is not known is refused then.
const ABOUT_CALLS: [&str; 10] =
    ["parallel", "parallelism", "zero", "shard", "sharding", "overlap", "bucket", "allreduce", "dispatcher", "all2all"];

/// Factors of a product that are 1 where no setting says them.
const DEGREES: [&str; 6] = ["tp", "cp", "dp", "pp", "ep", "_machines"];

/// What a recipe says of a step and of its layout.
#[derive(Clone, Debug)]
pub struct Recipe {
    keys: BTreeMap<String, Found>,
    /// What was taken from where, and what was not.
    pub notes: String,
}

/// The value of a key, and what sets it.
#[derive(Clone, Debug)]
struct Found {
    /// The value, or a product.
    text: String,
    place: Place,
    /// What the setting does.
    row: &'static Row,
    /// The name of the setting.
    setting: String,
    /// Whether the recipe leaves it to the framework.
    is_default: bool,
}

impl Recipe {
    /// Reads a recipe; some of its settings follow from the model.
    ///
    /// # Errors
    /// A file that cannot be read or whose framework is not known; settings with two values, with values that are not known, or about
    /// calls and not known; and those that follow from what is not executed, each with file, line and key.
    pub fn read(file: &Path, model: &Model) -> Result<Recipe> {
        let mut reader = Reader::default();
        let title = &reader.read(file)?.title;
        let keys = reader.keys(model)?;
        let note = |(key, found): (&String, &Found)| match found.is_default {
            true => format!("{key} = {}, as {title} has it without {}", visible(&found.text), found.setting),
            false => format!("{key} = {}: {}", visible(&found.text), found.place),
        };
        let mut notes: Vec<String> = keys.iter().map(note).collect();
        let not_taken = reader.not_taken.iter();
        notes.extend(not_taken.map(|(why, names)| format!("{} {why}: {}", names.len(), names.join(", "))));
        Ok(Recipe { keys, notes: format!("from {}:\n  {}", file.shown(), notes.join("\n  ")) })
    }

    /// The framework whose defaults hold.
    pub fn framework(&self) -> Option<Framework> {
        self.text("framework").and_then(|name| name.parse().ok())
    }

    /// The value of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(|found| found.text.as_str())
    }

    /// All ranks, where it says them.
    ///
    /// # Errors
    /// Another value than such a number.
    pub fn ranks(&self) -> Result<Option<u32>> {
        let item = self.keys.get("ranks").map(|found| Item::of_text(&found.text, &found.place));
        item.map(|item| item.count_within(1..=MOST_RANKS)).transpose()
    }

    /// Gives a table those of these keys that it does not have; what it has stays.
    pub fn fill<'a>(&self, table: &mut Table, keys: impl IntoIterator<Item = &'a str>) {
        let sizes = ["global_batch", "micro_batches"];
        let has_size = sizes.iter().any(|key| table.peek(key).is_some());
        for key in keys.into_iter().filter(|key| !has_size || !sizes.contains(key)) {
            if let Some(found) = self.keys.get(key) {
                table.default_to(key, &found.text, &found.place);
            }
        }
    }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    /// The keys that settings set, in their order; those of defaults are last.
    found: Vec<(String, Found)>,
    /// Where a recipe names the file that is read.
    within: Option<Place>,
    /// By the reason, settings that are not taken.
    not_taken: BTreeMap<String, Vec<String>>,
}

/// Why a setting is not taken.
const OF_MODEL: &str = "about the model, which --model says instead";
const NO_EFFECT: &str = "without effect on calls";
const UNKNOWN: &str = "not known and left out";

impl Reader {
    /// Reads the file that the user named, or one that this names.
    fn read(&mut self, file: &Path) -> Result<&'static Facts> {
        let place = self.within.clone().unwrap_or_else(|| Place::flag("--from"));
        let text = read_text(file, &place)?;
        let wrong = |problem: &str| place.wrong(format!("{}: {problem}", file.shown()));
        let found = match file.extension().and_then(|ending| ending.to_str()) {
            _ if text.len() > LONGEST_BYTES => {
                return Err(wrong("longer than 1 MiB; accepted: a script or a file of settings"));
            }
            Some("py") => {
                return Err(wrong("nothing is executed; accepted: the settings that Python comes to, as YAML"));
            }
            Some("yaml" | "yml" | "toml" | "json") => {
                let settings = settings::settings(file, &text)?;
                Facts::of_settings(&settings).map(|facts| (facts, settings))
            }
            _ => Facts::of_commands(file, &shell::commands(file, &text)?)?,
        };
        let (facts, settings) = found.ok_or_else(|| {
            let titles = Facts::all().map(|facts| facts.title.as_str()).collect::<Vec<_>>().join(", ");
            wrong(&format!("no framework is known by its settings or commands; accepted: a recipe of {titles}"))
        })?;
        for written in &settings {
            self.add(facts, written, file)?;
        }
        // A file within a recipe leaves defaults to that, but for the framework.
        let (begun, is_within) = (self.found.len(), self.within.is_some());
        let is_set = |setting: &String| settings.iter().any(|written| facts.name_of(&written.key) == setting);
        for (key, text) in facts.defaults.iter().filter(|(key, _)| !is_set(key) && (!is_within || *key == FRAMEWORK)) {
            let written = Written { key: key.clone(), text: text.clone(), place: place.clone() };
            self.add(facts, &written, file)?;
        }
        self.found[begun..].iter_mut().for_each(|(_, found)| found.is_default = !is_within);
        Ok(facts)
    }

    fn add(&mut self, facts: &'static Facts, written: &Written, file: &Path) -> Result<()> {
        let Written { key, text, place } = written;
        match facts.fact(key) {
            Fact::Row(row) if !is_absent(text) => return self.take(facts, row, written, file),
            Fact::OfModel => self.leave(OF_MODEL, key.clone()),
            Fact::NotModelled(reason) if !is_off(text) => self.leave_not_modelled(written, reason),
            Fact::Unknown if !is_off(text) && key.split(['.', '_']).any(|word| ABOUT_CALLS.contains(&word)) => {
                let problem = format!("{} has no such setting that is known{}", facts.title, facts.likely(key));
                return Err(place.wrong(format!("{problem} Leave it out where it changes no calls")));
            }
            Fact::Unknown => self.leave(UNKNOWN, place.to_string()),
            Fact::NoEffect | Fact::NotModelled(_) | Fact::Row(_) => self.leave(NO_EFFECT, key.clone()),
        }
        Ok(())
    }

    fn leave(&mut self, why: &str, setting: String) {
        self.not_taken.entry(why.to_owned()).or_default().push(setting);
    }

    fn leave_not_modelled(&mut self, Written { text, place, .. }: &Written, reason: &str) {
        self.leave(&format!("not modelled ({reason})"), format!("{place} = {}", visible(text)));
    }

    /// Takes the keys that a setting sets.
    fn take(&mut self, facts: &'static Facts, row: &'static Row, written: &Written, file: &Path) -> Result<()> {
        let Written { key, text, place } = written;
        let wrong = |problem: String| Err(place.wrong(format!("found `{}`{problem}", visible(text))));
        if let Some(why) = why_not_followed(text) {
            let keys = row.keys().into_iter().collect::<Vec<_>>().join(", ");
            return wrong(format!(", {why}; accepted: the value itself, or flags for {keys}"));
        }
        if row.file {
            if self.within.is_some() {
                return wrong(", a file in a file that a recipe names; accepted: one".to_owned());
            }
            let near = file.with_file_name(text);
            self.within = Some(place.clone());
            self.read(if near.is_file() { &near } else { Path::new(text) })?;
            self.within = None;
            return Ok(());
        }
        match (row.values_of(text), &row.otherwise) {
            (Some(values), _) => {
                let (place, setting) = (place.clone(), facts.name_of(key).to_owned());
                let found =
                    |text| Found { text, place: place.clone(), row, setting: setting.clone(), is_default: false };
                self.found.extend(values.into_iter().map(|(set, text)| (set, found(text))));
            }
            (None, Some(reason)) => self.leave_not_modelled(written, reason),
            (None, None) => return wrong(format!("; accepted: {}", row.accepted())),
        }
        Ok(())
    }

    /// Every key with its one value.
    ///
    /// # Errors
    /// Keys with two values, and a batch that its parts do not come to.
    fn keys(&mut self, model: &Model) -> Result<BTreeMap<String, Found>> {
        let over: BTreeSet<&String> = self.found.iter().flat_map(|(_, found)| &found.row.over).collect();
        let is_overruled = |key: &str, of: &String| over.contains(of) || over.contains(&format!("{of}.{key}"));
        let mut keys: BTreeMap<String, Found> = BTreeMap::new();
        for (key, found) in self.found.iter().filter(|(key, found)| !is_overruled(key, &found.setting)) {
            match keys.get_mut(key) {
                None => drop(keys.insert(key.clone(), found.clone())),
                Some(other) if other.row.times && found.row.times => other.text += &format!("*{}", found.text),
                Some(other) if found.is_default || other.text == found.text => {}
                Some(other) => {
                    let problem = format!("sets {key} to {}, and {} to {}", found.text, other.place, other.text);
                    return Err(found.place.wrong(format!("{problem}; accepted: one of them")));
                }
            }
        }
        let texts = |keys: &BTreeMap<String, Found>| -> BTreeMap<String, String> {
            keys.iter().map(|(key, found)| (key.clone(), found.text.clone())).collect()
        };
        let factors = texts(&keys);
        keys.values_mut().for_each(|found| found.text = product(&found.text, model, &factors));
        keys.retain(|_, found| !found.text.is_empty());
        let values = texts(&keys);
        let has = |(key, wanted): (&String, &Vec<String>)| values.get(key).is_some_and(|value| wanted.contains(value));
        for (_, found) in keys.extract_if(.., |_, found| !found.row.only.iter().all(has)) {
            self.leave(NO_EFFECT, found.setting);
        }
        self.layers_of_chunks(&mut keys, model)?;
        // One group of all ranks that share parameters, or of more, is replicated nowhere.
        let is_one = |found: &Found| found.text.parse::<f64>().is_ok_and(|groups| groups <= 1.0);
        if keys.get("replicas_of_shards").is_some_and(is_one) {
            keys.retain(|key, found| key != "replicas_of_shards" && found.text != "hsdp");
        }
        keys.retain(|key, _| !key.starts_with('_'));
        replicas_of_batch(&mut keys)?;
        Ok(keys)
    }

    /// Sets the layers of every chunk where the recipe has a layout, or says those of the first or the last stage.
    fn layers_of_chunks(&mut self, keys: &mut BTreeMap<String, Found>, model: &Model) -> Result<()> {
        let number = |found: Option<&Found>| found.and_then(|found| found.text.parse::<u32>().ok());
        let [pp, chunks] = ["pp", "virtual_stages"].map(|key| number(keys.get(key)).unwrap_or(1).max(1));
        let [layout, first, last] = ["_layout", "_first_layers", "_last_layers"].map(|key| keys.get(key));
        let Some(found) = layout.or(first).or(last).cloned() else { return Ok(()) };
        let counts = match layout {
            Some(layout) => layers_of_layout(&layout.text, pp as usize),
            None => layers_around([first, last].map(number), [model.layers, pp, chunks]).map(Some),
        };
        let counts = counts.map_err(|why| found.place.wrong(format!("found `{}`: {why}", visible(&found.text))))?;
        let Some(counts) = counts else {
            self.leave("not modelled (prediction layers apart from the head)", found.place.to_string());
            return Ok(());
        };
        let chunks = counts.len() / pp as usize;
        let set = |text: String| Found { text, ..found.clone() };
        keys.insert("stage_layers".to_owned(), set(counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",")));
        if chunks > 1 {
            keys.entry("virtual_stages".to_owned()).or_insert(set(chunks.to_string()));
        }
        Ok(())
    }
}

/// The longest layout with its repetitions written out.
const LONGEST_LAYOUT: usize = 1 << 14;

/// The layers of each chunk of a layout such as `Et*3|(tt|)*28|tL`; none where prediction layers are apart from the head (Megatron-LM
/// core/transformer/pipeline_parallel_layer_layout.py parse_str_to_list).
fn layers_of_layout(layout: &str, pp: usize) -> std::result::Result<Option<Vec<u32>>, String> {
    let mut all = layout.replace(',', "");
    while let Some((before, behind)) = all.split_once('*') {
        let number = behind.split(|digit: char| !digit.is_ascii_digit()).next().unwrap_or_default();
        let group = before.strip_suffix(')').and_then(|group| group.rfind('('));
        let begin = group.or(before.char_indices().next_back().map(|(at, _)| at)).unwrap_or(0);
        let unit = before[begin..].trim_matches(['(', ')']);
        let room = LONGEST_LAYOUT.saturating_sub(all.len());
        let times = number.parse().ok().filter(|times: &usize| *times > 0 && times.saturating_mul(unit.len()) <= room);
        let times = times.ok_or_else(|| format!("`{}*{number}`; accepted: t*2 or (tt|)*2", visible(unit)))?;
        all = [&before[..begin], &unit.repeat(times), &behind[number.len()..]].concat();
    }
    if let Some(wrong) = all.chars().find(|layer| !"EtmL|".contains(*layer)) {
        return Err(format!("`{wrong}`; accepted: E, t, m, L, | between chunks, t*2 and (tt|)*2"));
    }
    let inner = all.strip_prefix('E').and_then(|all| all.strip_suffix('L')).filter(|all| !all.contains(['E', 'L']));
    let inner = inner.ok_or("accepted: one E, the embedding, in front, and one L, the loss, at the end")?;
    let counts: Vec<u32> = inner.split('|').map(|chunk| chunk.matches('t').count() as u32).collect();
    if !counts.len().is_multiple_of(pp) {
        return Err(format!("{} chunks; accepted: a multiple of pp = {pp}", counts.len()));
    }
    let behind = inner.find('m').map_or("", |first| &inner[first..]);
    Ok((!behind.contains(['t', '|'])).then_some(counts))
}

/// The layers of each chunk where the first or the last stage has its own number, and the others have equal ones.
fn layers_around(ends: [Option<u32>; 2], [layers, pp, chunks]: [u32; 3]) -> std::result::Result<Vec<u32>, String> {
    let others = pp.saturating_sub(ends.iter().flatten().count() as u32);
    let rest = ends.iter().flatten().try_fold(layers, |rest, end| rest.checked_sub(*end));
    // No stage between the ends is without a layer.
    let rest = rest.filter(|rest| rest.is_multiple_of(others) && (*rest == 0) == (others == 0));
    let of_stage = |stage: u32| match (stage, ends) {
        (0, [Some(first), _]) => Some(first),
        (stage, [_, Some(last)]) if stage + 1 == pp => Some(last),
        _ => rest.and_then(|rest| rest.checked_div(others)),
    };
    let of_chunk = |chunk: u32| of_stage(chunk % pp).filter(|all| all.is_multiple_of(chunks)).map(|all| all / chunks);
    let all = rest.and_then(|_| (0..pp.checked_mul(chunks)?).map(of_chunk).collect());
    all.ok_or_else(|| {
        format!("accepted: what leaves {others} other stages equally many of {layers} layers, in {chunks} chunks")
    })
}

/// Why a text is not the value itself.
fn why_not_followed(text: &str) -> Option<&'static str> {
    let reasons = [
        ("$((", "which is arithmetic of the shell"),
        ("$(", "which a command prints, and nothing is executed"),
        ("`", "which a command prints, and nothing is executed"),
        ("$", "which no plain assignment outside of a branch sets"),
    ];
    let of_shell = reasons.into_iter().find(|(mark, _)| text.contains(mark)).map(|(_, reason)| reason);
    of_shell.or(text.starts_with('*').then_some("an anchor of YAML, which is not followed"))
}

/// Whether a setting says nothing.
fn is_absent(text: &str) -> bool {
    ["", "null", "None", "~"].contains(&text)
}

/// Whether a setting switches off what it is about.
fn is_off(text: &str) -> bool {
    is_absent(text) || ["false", "no", "off", "none", "0", "1", "-1"].contains(&text.to_lowercase().as_str())
}

/// Takes out the micro-batches where the batch of all replicas is there too: together they say how many replicas there are.
fn replicas_of_batch(keys: &mut BTreeMap<String, Found>) -> Result<()> {
    let number = |key: &str| keys.get(key).and_then(|found| found.text.parse::<u64>().ok());
    let (Some(batch), Some(micro_batches)) = (number("global_batch"), number("micro_batches")) else { return Ok(()) };
    let micro_batch = number("micro_batch").unwrap_or(1);
    let all = keys["global_batch"].clone();
    if keys.remove("micro_batches").is_some_and(|parts| !parts.is_default) {
        let of_replica = micro_batch.saturating_mul(micro_batches).max(1);
        if !batch.is_multiple_of(of_replica) {
            return Err(all.place.wrong(format!(
                "found {batch}, which is no multiple of {micro_batch} x {micro_batches}, the samples of a replica; accepted: their \
                 product with the replicas"
            )));
        }
        keys.entry("dp".to_owned()).or_insert(Found { text: (batch / of_replica).to_string(), ..all });
    }
    Ok(())
}

/// A text, or the product of its factors, rounded down where nothing divides; nothing where a factor is not known.
fn product(text: &str, model: &Model, keys: &BTreeMap<String, String>) -> String {
    if !text.contains('*') {
        return text.to_owned();
    }
    let mut product = 1.0;
    for factor in text.split('*') {
        let name = factor.trim_start_matches('/');
        let number = match (name, keys.get(name)) {
            ("", _) => return String::new(),
            ("hidden", _) => model.hidden as f64,
            ("layers", _) => f64::from(model.layers),
            (_, Some(text)) => text.split('*').map(|factor| factor.parse().unwrap_or(1.0)).product(),
            // A degree that is left out is 1.
            (_, None) if DEGREES.contains(&name) => 1.0,
            (_, None) => match name.parse::<f64>() {
                Ok(number) => number,
                // The key itself says what it accepts.
                Err(_) => return text.to_owned(),
            },
        };
        product = if name.len() < factor.len() { product / number } else { product * number };
    }
    // What does not come out even is refused by its key.
    if text.contains('/') && product > 1.0 && product.fract() != 0.0 {
        text.to_owned()
    } else {
        (product as u64).to_string()
    }
}

#[cfg(test)]
mod tests {
    // Recipes in the public forms of ten projects, and what is refused.
    use super::super::step::keys_of;
    use super::*;
    use commgauge_base::testing::enter_checkout;
    use std::fs;

    const FOLDER: &str = "tests/data/recipes";

    fn read(file: &Path, model: &str) -> Result<Recipe> {
        Recipe::read(file, &Model::load(model).unwrap())
    }

    #[derive(serde::Deserialize)]
    struct Expected {
        model: String,
        keys: BTreeMap<String, toml::Value>,
        #[serde(default)]
        notes: Vec<String>,
    }

    #[test]
    fn every_recipe_sets_the_keys_that_its_framework_reads_from_it() {
        enter_checkout();
        let text = fs::read_to_string(format!("{FOLDER}/expected.toml")).unwrap();
        let expected: BTreeMap<String, Expected> = toml::from_str(&text).unwrap();
        let mut wrong = Vec::new();
        for (name, Expected { model, keys, notes }) in &expected {
            let recipe = match read(&Path::new(FOLDER).join(name), model) {
                Ok(recipe) => recipe,
                Err(problem) => {
                    wrong.push(format!("{name}: {problem}"));
                    continue;
                }
            };
            let found: BTreeMap<String, String> =
                recipe.keys.iter().map(|(key, found)| (key.clone(), found.text.clone())).collect();
            let keys = keys
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            let keys: BTreeMap<String, String> = keys.collect();
            let missing = notes.iter().filter(|note| !recipe.notes.contains(*note)).collect::<Vec<_>>();
            if found != keys || !missing.is_empty() {
                wrong.push(format!(
                    "{name}:\n  found {found:?}\n  right {keys:?}\n  missing {missing:?}\n{}",
                    recipe.notes
                ));
            }
        }
        let recipes = fs::read_dir(FOLDER).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let without =
            recipes.filter(|name| !expected.contains_key(name) && name != "README.md" && name != "expected.toml");
        assert_eq!(without.collect::<Vec<_>>(), Vec::<String>::new());
        assert!(wrong.is_empty() && expected.len() >= 20, "{}", wrong.join("\n"));
    }

    #[test]
    fn settings_that_change_no_calls_are_said_to_have_no_effect() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            (
                "ds.json",
                "{\"fp16\": {\"enabled\": true, \"loss_scale\": 8, \"loss_scale_window\": 9, \"hysteresis\": 2},
                \"zero_optimization\": {\"stage\": 2, \"elastic_checkpoint\": true, \"offload_optimizer\": {\"device\": \"cpu\"}},
                \"flops_profiler\": {\"enabled\": true}, \"csv_monitor\": {\"enabled\": true}}",
            ),
            ("accelerate.yaml", "distributed_type: MULTI_GPU\ngpu_ids: 0,1,2,3\nnum_processes: 8\nfp8_config: null\n"),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            let notes = read(&file, "llama-3-8b").unwrap().notes;
            assert!(notes.contains(NO_EFFECT) && !notes.contains("not modelled") && !notes.contains(UNKNOWN), "{notes}");
        }
    }

    #[test]
    fn every_fact_names_keys_that_are() {
        let known: Vec<&str> =
            keys_of(super::super::step::Work::Training).chain(keys_of(super::super::step::Work::Serving)).collect();
        let layout = ["tp", "cp", "dp", "pp", "ep", "etp", "order", "ranks", "framework"];
        for facts in Facts::all() {
            assert!(facts.framework.parse::<Framework>().is_ok(), "{}", facts.title);
            for key in facts.rows.values().flat_map(Row::keys) {
                let is_known = known.contains(&key) || layout.contains(&key) || key.starts_with('_');
                assert!(is_known, "{}: {key}", facts.title);
            }
        }
    }

    #[test]
    fn groups_of_shards_follow_from_their_ranks() {
        let folder = tempfile::tempdir().unwrap();
        let of = |size: &str| {
            let file = folder.path().join("a.sh");
            let actor = format!("actor_rollout_ref.actor.fsdp_config.fsdp_size={size}");
            let words = format!("python -m verl.trainer.main_ppo {actor} trainer.nnodes=2 trainer.n_gpus_per_node=4");
            fs::write(&file, words).unwrap();
            let recipe = read(&file, "llama-3-8b").unwrap();
            ["data_style", "replicas_of_shards"].map(|key| recipe.text(key).map(str::to_owned))
        };
        let hsdp = |groups: &str| [Some("hsdp".to_owned()), Some(groups.to_owned())];
        assert_eq!([of("4"), of("1")], [hsdp("2"), hsdp("8")]);
        assert_eq!([of("8"), of("16"), of("-1")], [const { [None, None] }; 3]);
        // What does not divide reaches the key, which refuses it.
        assert_eq!([of("3"), of("0")], [hsdp("ranks*/3"), hsdp("ranks*/0")]);
    }

    #[test]
    fn layouts_of_stages_are_read_as_megatron_unrolls_them() {
        let counts = |layout: &str| layers_of_layout(layout, 1).unwrap();
        assert_eq!(counts("Et*3|(tt|)*2,t|L"), Some(vec![3, 2, 2, 1, 0]));
        assert_eq!(counts("E|(t*2|t|)*2,ttL"), Some(vec![0, 2, 1, 2, 1, 2]));
        assert_eq!(counts("Ett|tm*1L"), Some(vec![2, 1]));
        assert_eq!(counts("Et*3|(tt|)*29,m|L"), None, "DeepSeek-V3's prediction layer has a chunk of its own");
        for wrong in ["Et|(tt|L", "Et|tt)*L", "*2", "E(t", "", "EL|"] {
            assert!(layers_of_layout(wrong, 1).unwrap_err().contains("accepted: "), "{wrong}");
        }
        // 61 layers: 4 on the first stage, 6 on the last, and 17 on each of three others; two chunks of each.
        assert_eq!(layers_around([Some(4), Some(6)], [61, 5, 1]).unwrap(), [4, 17, 17, 17, 6]);
        assert_eq!(layers_around([None, Some(2)], [14, 4, 2]).unwrap(), [2, 2, 2, 1, 2, 2, 2, 1]);
        assert_eq!(layers_around([Some(15), Some(17)], [32, 2, 1]).unwrap(), [15, 17]);
        assert!(layers_around([Some(32), None], [32, u32::MAX, 1]).is_err());
        assert!(layers_around([Some(u32::MAX); 2], [32, 4, u32::MAX]).is_err());
        assert!(layers_around([Some(4), Some(6)], [61, 2, 1]).is_err());
        assert!(layers_around([Some(70), None], [61, 2, 1]).is_err());
    }

    #[test]
    fn no_part_of_a_recipe_under_any_ending_panics() {
        enter_checkout();
        let model = Model::load("llama-3-8b").unwrap();
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(FOLDER).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            for part in (0..=16).map(|part| &text[..text.len() * part / 16]) {
                for ending in ["sh", "yaml", "json", "toml"] {
                    let file = folder.path().join(format!("recipe.{ending}"));
                    fs::write(&file, part.replacen("8", "\"'{[(", 1)).unwrap();
                    if let Err(error) = Recipe::read(&file, &model) {
                        assert!(
                            error.exit_code() == 2 && !error.to_string().is_empty(),
                            "{}: {error}",
                            entry.path().display()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_computed_doubled_or_not_known_is_refused_with_file_line_and_key() {
        let folder = tempfile::tempdir().unwrap();
        let mut wrong = Vec::new();
        let start = "pretrain_gpt.py --pipeline-model-parallel-size 1";
        for (name, text, expected) in [
            (
                "a.sh",
                format!("TP=$((2*4))\n{start} --tensor-model-parallel-size $TP"),
                "a.sh:2: --tensor-model-parallel-size: found `$((2*4))`, which is arithmetic of the shell",
            ),
            (
                "a.sh",
                format!("N=$(nvidia-smi -L | wc -l)\n{start} --seq-length $N"),
                "which a command prints, and nothing is executed",
            ),
            (
                "a.sh",
                format!("if [ -n \"$A\" ]; then\n  TP=4\nfi\n{start} --tensor-model-parallel-size $TP"),
                "no plain assignment outside of a branch",
            ),
            (
                "a.sh",
                format!("{start} \\\n  --seq-length 8 --seq-length 9"),
                "a.sh:2: --seq-length: sets sequence to 9, and ",
            ),
            ("a.sh", format!("{start} --tensor-modl-parallel-size 2"), "did you mean `tensor_model_parallel_size`?"),
            (
                "a.sh",
                format!("{start} --cp-comm-type carrier"),
                "found `carrier`; accepted: a2a, a2a+p2p, all_gather, p2p",
            ),
            ("a.sh", format!("{start}\n{start} --bf16"), "a.sh:2: pretrain_gpt.py: is a second command"),
            ("a.sh", format!("A='open\n{start}"), "a.sh:1: the command: a quote or a list is not closed"),
            ("a.sh", format!("A=xxxxxxxxxxxxxxxx\n{}{start}", "A=$A$A\n".repeat(40)), "hold more than 1 MiB"),
            (
                "a.sh",
                format!("{start} --pipeline-model-parallel-layout 'Et|xL'"),
                "layout: found `Et|xL`: `x`; accepted: E, t",
            ),
            (
                "a.sh",
                format!("{start} --pipeline-model-parallel-layout 't|tL'"),
                "accepted: one E, the embedding, in front",
            ),
            (
                "a.sh",
                format!("{start} --pipeline-model-parallel-layout 'Et|EtL'"),
                "accepted: one E, the embedding, in front",
            ),
            (
                "a.sh",
                format!("{start} --pipeline-model-parallel-layout 'Et*0|L'"),
                "found `Et*0|L`: `t*0`; accepted: t*2 or (tt|)*2",
            ),
            (
                "a.sh",
                format!("{start} --pipeline-model-parallel-layout 'E(t*9999|)*9999L'"),
                "*9999`; accepted: t*2 or (tt|)*2",
            ),
            (
                "a.sh",
                "pretrain_gpt.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*9|t*9|t*14L'"
                    .to_owned(),
                "a.sh:1: --pipeline-model-parallel-layout: found `Et*9|t*9|t*14L`: 3 chunks; accepted: a multiple of pp = 2",
            ),
            (
                "a.sh",
                "pretrain_gpt.py --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7".to_owned(),
                "a.sh:1: --decoder-first-pipeline-num-layers: found `7`: accepted: what leaves 3 other stages equally many of 32 layers, in 1 chunks",
            ),
            ("a.sh", "echo nothing".to_owned(), "no framework is known by its settings or commands"),
            ("a.py", "tp = 4".to_owned(), "nothing is executed"),
            ("a.json", "{\n// ZeRO\n\"zero_optimization\": {}}".to_owned(), "JSON has no comments, take them out"),
            ("a.json", "{ // ZeRO\n\"zero_optimization\": {}}".to_owned(), "JSON has no comments, take them out"),
            (
                "a.json",
                "{\"zero_optimization\": {\"stage\": 2,\n\"stage\": 3}}".to_owned(),
                "a.json:2: stage: occurs twice in one object",
            ),
            (
                "a.json",
                "{\"zero_optimization\": {\"stage\": 4}}".to_owned(),
                "zero_optimization.stage: found `4`; accepted: 0, 1, 2, 3",
            ),
            (
                "a.json",
                "{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}"
                    .to_owned(),
                "no multiple of 4 x 1",
            ),
            (
                "a.yaml",
                "all: &all 8\ndistributed_type: FSDP\nnum_processes: *all".to_owned(),
                "a.yaml:3: num_processes: found `*`, an anchor of YAML",
            ),
            (
                "a.yaml",
                "base: &base {}\ndistributed_type: FSDP\nfsdp_config:\n  <<: *base".to_owned(),
                "a.yaml:4: not YAML: found `<<`",
            ),
            (
                "a.yaml",
                "distributed_type: FSDP\n\tnum_processes: 8".to_owned(),
                "a.yaml:1: not YAML: while scanning a plain scalar, found a tab",
            ),
            (
                "a.yaml",
                format!("distributed_type: {}", "[".repeat(100_000)),
                "a.yaml:1: not YAML: recursion limit exceeded",
            ),
            (
                "a.toml",
                "[parallelism]\ntensor_parallel_degree = 2\nzero_bubble_parallel_degree = 2".to_owned(),
                "a.toml:3: parallelism.zero_bubble_parallel_degree: torchtitan",
            ),
            ("a.toml", "[parallelism]\na = 1\na = 2".to_owned(), "a.toml:3: not TOML"),
        ] {
            let file = folder.path().join(name);
            fs::write(&file, &text).unwrap();
            match read(&file, "llama-3-8b") {
                Err(error) if error.to_string().contains(expected) && error.exit_code() == 2 => {}
                Err(error) => wrong.push(format!("{text:.80}: {error}")),
                Ok(recipe) => wrong.push(format!("{text:.80}: {}", recipe.notes)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
