//! Which file imports which: the paths of a source, each resolved to the file that defines what it names.
//!
//! Tests do not count, neither modules nor items. A re-export is followed to the definition, so that it hides nothing; a file that
//! only hands a child's names on does not import that child. Names of `use x::*` and paths in inline modules are not followed.

use crate::layers::scan::{blank, leaves, occurrences};
use crate::layers::{CRATES, Sources, inside_crate};
use std::collections::{BTreeMap, BTreeSet};

/// By importing file and imported file: the names.
pub type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;
/// A module as its path from the root of the package.
type Module = Vec<String>;

/// Meaning of a module's name, from a `use`.
struct Binding {
    name: String,
    target: Module,
    /// Handed on from a module below and not used in this file itself.
    handed_on: bool,
}

struct File {
    path: String,
    /// Without comments, literals and tests.
    code: String,
    bindings: Vec<Binding>,
    /// Paths outside of `use`.
    paths: Vec<Module>,
}

/// The modules of a package by their path.
struct Modules(BTreeMap<Module, File>);

/// The arrows between the files below `src/`, programs left out.
pub fn arrows(sources: &Sources) -> Arrows {
    let modules = Modules::of(sources);
    let mut arrows = Arrows::new();
    for file in modules.0.values() {
        let bound = file.bindings.iter().filter(|binding| !binding.handed_on).map(|binding| &binding.target);
        for target in bound.chain(&file.paths) {
            let Some((defining, name)) = modules.resolve(target, 0) else { continue };
            if defining.path != file.path && defining.path != "src/lib.rs" {
                let names = arrows.entry(file.path.clone()).or_default().entry(defining.path.clone()).or_default();
                names.insert(name);
            }
        }
    }
    arrows
}

impl Modules {
    fn of(sources: &Sources) -> Modules {
        let code: BTreeMap<Module, (String, String)> = sources
            .iter()
            .filter(|(path, _)| !path.starts_with("src/bin/") && !is_crate_root(path))
            .map(|(path, source)| (module_of(path), (path.clone(), without_tests(source))))
            .collect();
        // A test module in a separate file is declared nowhere once tests are cut.
        let is_declared = |module: &Module| {
            (1..=module.len()).all(|length| {
                let (name, parent) = (&module[length - 1], module[..length - 1].to_vec());
                parent.is_empty() || code.get(&parent).is_none_or(|(_, code)| declares(code, name))
            })
        };
        let known: BTreeSet<&Module> = code.keys().filter(|module| is_declared(module)).collect();
        let files = known.iter().map(|module| {
            let (path, code) = &code[*module];
            let children: Vec<&str> = known
                .iter()
                .filter(|other| other.len() == module.len() + 1 && other.starts_with(module.as_slice()))
                .map(|other| other[module.len()].as_str())
                .collect();
            ((*module).clone(), File::of(path, code, module, &children))
        });
        Modules(files.collect())
    }

    /// The file that defines what a path names, and the name.
    fn resolve(&self, path: &[String], depth: usize) -> Option<(&File, String)> {
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
        let file = &self.0[&path[..length]];
        let Some(name) = path.get(length) else { return Some((file, "the module".to_owned())) };
        let binding = file.bindings.iter().find(|binding| binding.name == *name);
        match binding.filter(|_| depth < 8 && !defines(&file.code, name)) {
            Some(binding) => self.resolve(&[binding.target.as_slice(), &path[length + 1..]].concat(), depth + 1),
            None => Some((file, name.clone())),
        }
    }
}

impl File {
    fn of(path: &str, code: &str, module: &[String], children: &[&str]) -> File {
        let mut file = File { path: path.to_owned(), code: code.to_owned(), bindings: Vec::new(), paths: Vec::new() };
        let (mut rest, mut imports) = (code.to_owned(), Vec::new());
        for at in occurrences(code, "use") {
            // `use<'a>` is a bound.
            let Some(length) = code[at..].find(';').filter(|_| !code[at + 3..].starts_with('<')) else { continue };
            imports.push((is_public(&code[..at]), &code[at + 3..at + length]));
            rest.replace_range(at..at + length, &" ".repeat(length));
        }
        for (public, tree) in imports {
            for leaf in leaves(tree.trim_start().trim_start_matches("::")) {
                let Some(mut target) = absolute(&leaf.path, module, children) else { continue };
                target.pop_if(|last| *last == "self");
                let Some(name) = leaf.alias.or_else(|| target.last().cloned()) else { continue };
                let below = target.len() > module.len() && target.starts_with(module);
                let handed_on =
                    public && below && occurrences(&rest, &name).iter().all(|at| is_declaration(&rest, *at));
                file.bindings.push(Binding { name, target, handed_on });
            }
        }
        let crates = CRATES.map(|name| format!("commgauge_{name}"));
        let roots = ["crate", "self", "super"].into_iter().chain(crates.iter().map(String::as_str));
        for root in roots.chain(children.iter().copied()) {
            for at in occurrences(&rest, root) {
                let before = rest[..at].trim_end();
                let begins_path = rest[at + root.len()..].starts_with("::") && !before.ends_with("::");
                if begins_path && !before.ends_with("(in") {
                    let path = leaves(&rest[at..]).pop().map(|leaf| leaf.path).unwrap_or_default();
                    file.paths.extend(absolute(&path, module, children));
                }
            }
        }
        file
    }
}

/// A path from the root of the package; none if it begins with another package than ours.
fn absolute(path: &[String], module: &[String], children: &[&str]) -> Option<Module> {
    let first = path.first()?.as_str();
    let ups = path.iter().take_while(|segment| *segment == "super").count();
    let (base, rest) = match first {
        root if is_root(root) => (&[][..], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        _ if children.contains(&first) => (module, path),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// The root of a crate below `src/`, which only declares its rooms.
fn is_crate_root(path: &str) -> bool {
    CRATES.iter().any(|name| path == format!("src/{name}/lib.rs"))
}

/// Whether a path that begins so is from the root of one of the crates, which are taken for one package.
fn is_root(segment: &str) -> bool {
    segment == "crate" || CRATES.iter().any(|name| segment == format!("commgauge_{name}"))
}

fn module_of(path: &str) -> Module {
    let stem = inside_crate(path).trim_end_matches(".rs").trim_end_matches("/mod");
    stem.split('/').filter(|segment| *segment != "lib").map(str::to_owned).collect()
}

/// The code of a source without comments, literals and what only tests have.
fn without_tests(source: &str) -> String {
    let mut code = blank(source);
    let gates: Vec<usize> =
        ["#[cfg(test)]", "#[cfg(all(test"].iter().flat_map(|gate| code.match_indices(gate)).map(|(at, _)| at).collect();
    for at in gates {
        let end = at + end_of_item(&code[at..]);
        let blanked: String = code[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        code.replace_range(at..end, &blanked);
    }
    code
}

/// The length of an item with the attributes before it: up to its closing brace or semicolon.
fn end_of_item(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' => depth -= 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn declares(code: &str, module: &str) -> bool {
    occurrences(code, module).iter().any(|at| is_declaration(code, *at) && code[at + module.len()..].starts_with(';'))
}

/// Whether a name follows `mod`.
fn is_declaration(code: &str, at: usize) -> bool {
    code[..at].trim_end().ends_with("mod")
}

/// Whether the following text is after `pub` or `pub(...)`.
fn is_public(before: &str) -> bool {
    let before = before.trim_end();
    before.ends_with("pub")
        || before.ends_with(')') && before.rsplit(';').next().is_some_and(|head| head.contains("pub("))
}

fn defines(code: &str, name: &str) -> bool {
    const WORDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules!"];
    occurrences(code, name).into_iter().any(|at| {
        let before = code[..at].trim_end();
        WORDS.iter().any(|word| before.ends_with(word) && before.len() < at)
    })
}
