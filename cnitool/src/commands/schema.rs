//! `schema`: JSON Schema of configurations, for editors and other programs.

use std::fs;
use std::path::Path;

use cni::Code;
use runtime::Result;
use serde_json::{Value, json};

use crate::ui::Ui;
use validate::schema::{json as schemas, nearest};

/// Prints one schema, or writes all schemas into a directory.
pub fn run(of: &str, to: Option<&Path>, ui: &Ui) -> Result<()> {
    if let Some(dir) = to {
        let files: Result<Vec<_>> = schemas::all().map(|(name, schema)| write(dir, name, &schema)).collect();
        let files = files?;
        return if ui.json() { ui.print_json(&json!({"files": files})) } else { Ok(()) };
    }
    match schemas::all().find(|(name, _)| *name == of) {
        Some((_, schema)) => ui.print(&schemas::as_file(&schema)),
        None => {
            let near = nearest(of, schemas::all().map(|(name, _)| name));
            let help = near.map_or("`cnitool explain` lists the plugins".to_owned(), |near| {
                format!("did you mean {near:?}?")
            });
            let text = format!("{of:?} is not a plugin of Ferrule");
            Err(cni::Error::new(Code::InvalidEnvironment, text).detail(help).into())
        }
    }
}

/// Returns the path of the file.
fn write(dir: &Path, name: &str, schema: &Value) -> Result<String> {
    let file = dir.join(format!("{name}.json"));
    fs::write(&file, schemas::as_file(schema))
        .map_err(|e| cni::Error::io(format!("write {}", file.display()), &e))?;
    Ok(file.to_string_lossy().into_owned())
}
