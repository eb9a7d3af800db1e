//! `schema`: JSON Schema of configurations, for editors and other programs.

use std::fs;
use std::path::Path;

use runtime::Result;
use serde_json::Value;

use crate::ui::Ui;
use validate::schema::{json, nearest};

/// Prints one schema, or writes all schemas into a directory.
pub fn run(of: &str, to: Option<&Path>, ui: &Ui) -> Result<()> {
    if let Some(dir) = to {
        return json::all().try_for_each(|(name, schema)| write(dir, name, &schema));
    }
    match json::all().find(|(name, _)| *name == of) {
        Some((_, schema)) => ui.print(&json::as_file(&schema)),
        None => {
            let near = nearest(of, json::all().map(|(name, _)| name));
            let help = near.map(|near| format!("did you mean {near:?}?")).unwrap_or_default();
            Err(cni::Error::config(format!("{of:?} is not a plugin of Ferrule")).detail(help).into())
        }
    }
}

fn write(dir: &Path, name: &str, schema: &Value) -> Result<()> {
    let file = dir.join(format!("{name}.json"));
    Ok(fs::write(&file, json::as_file(schema))
        .map_err(|e| cni::Error::io(format!("write {}", file.display()), &e))?)
}
