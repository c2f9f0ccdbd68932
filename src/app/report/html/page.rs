//! The page: its head, its sections and the template that frames them.

use crate::chart::STYLE;
use crate::report::document::{self, Block};
use crate::report::text::visible;
use askama::Template;
use base64::Engine;
use commgauge_base::error::{Error, Result};
use sha2::{Digest, Sha256};

/// The whole page.
#[derive(Debug, Template)]
#[template(path = "report.html")]
pub(in crate::report) struct Page {
    title: String,
    subtitle: String,
    synthetic: bool,
    sections: Vec<Section>,
    footer: String,
    style: String,
    style_sha256_base64: String,
}

/// A part of the page with a heading.
#[derive(Debug)]
pub(in crate::report) struct Section {
    id: &'static str,
    title: &'static str,
    html: String,
}

impl Section {
    pub fn new(id: &'static str, title: &'static str, blocks: &[Block]) -> Section {
        Section { id, title, html: document::html(blocks) }
    }
}

impl Page {
    pub fn new(title: &str, subtitle: &str, synthetic: bool, sections: Vec<Section>, footer: &str) -> Page {
        let style = format!("{STYLE}{}", include_str!("../../../../reports/templates/report.css"));
        let style_sha256_base64 = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(&style));
        let [title, subtitle, footer] = [title, subtitle, footer].map(visible);
        Page { title, subtitle, synthetic, sections, footer, style, style_sha256_base64 }
    }

    pub fn text(&self) -> Result<String> {
        self.render().map_err(|cause| Error::environment(format!("cannot write the report as HTML: {cause}")))
    }
}
