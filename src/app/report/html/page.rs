//! The page: its head, its sections and the template that frames them.

use crate::chart::STYLE;
use crate::report::document::{Block, Html};
use crate::report::text::visible;
use askama::Template;
use base64::Engine;
use commgauge_base::error::{Error, Result};
use sha2::{Digest, Sha256};

/// Searches and sorts tables; the only script that the policy of the page allows.
const SCRIPT: &str = include_str!("../../../../reports/templates/report.js");

/// The whole page.
#[derive(Debug, Template)]
#[template(path = "report.html")]
pub(in crate::report) struct Page {
    /// Name of the tab, which says the answer first.
    tab: String,
    title: String,
    subtitle: String,
    synthetic: bool,
    sections: Vec<DrawnSection>,
    footer: String,
    style: String,
    style_sha256_base64: String,
    script: &'static str,
    script_sha256_base64: String,
}

/// A part of the page with a heading.
#[derive(Debug)]
pub(in crate::report) struct Section {
    id: &'static str,
    title: String,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct DrawnSection {
    id: &'static str,
    title: String,
    html: String,
}

impl Section {
    pub fn new(id: &'static str, title: impl Into<String>, blocks: Vec<Block>) -> Section {
        Section { id, title: title.into(), blocks }
    }
}

impl Page {
    pub fn new(title: &str, subtitle: &str, synthetic: bool, sections: Vec<Section>, footer: &str) -> Page {
        let style = format!("{STYLE}{}", include_str!("../../../../reports/templates/report.css"));
        let [title, subtitle, footer] = [title, subtitle, footer].map(visible);
        let mut html = Html::default();
        let drawn = |section: Section| {
            let text = html.section(&section.title, &section.blocks);
            DrawnSection { id: section.id, title: visible(&section.title), html: text }
        };
        Page {
            tab: title.clone(),
            title,
            subtitle,
            synthetic,
            sections: sections.into_iter().map(drawn).collect(),
            footer,
            style_sha256_base64: sha256_base64(&style),
            style,
            script: SCRIPT,
            script_sha256_base64: sha256_base64(SCRIPT),
        }
    }

    /// The same with the answer before the title in the name of the tab.
    pub fn answering(self, answer: &str) -> Page {
        Page { tab: visible(&format!("{answer} · {}", self.title)), ..self }
    }

    pub fn text(&self) -> Result<String> {
        self.render().map_err(|cause| Error::environment(format!("cannot write the report as HTML: {cause}")))
    }
}

fn sha256_base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text))
}
