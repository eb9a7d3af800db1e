//! `sysdump`.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::Result;
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::sysdump::{self, Item};
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Lists the files of the archive. Then writes it, unless the user wants only the list.
pub fn run(to: Option<&Path>, list: bool, settings: &Settings, ui: &Ui) -> Result<()> {
    let items = sysdump::contents(settings)?;
    let to = to.map_or_else(file_name, Path::to_owned);
    if !ui.json() {
        ui.print(&table(&items).render(ui, ""))?;
    }
    if !list {
        sysdump::write(&to, &items)?;
    }
    let removed: usize = items.iter().map(|item| item.removed).sum();
    ui.either(
        || {
            let files: Vec<Value> = items.iter().map(json).collect();
            json!({"archive": (!list).then(|| to.to_string_lossy()), "removed": removed, "files": files})
        },
        || match list {
            true => format!("{} files; nothing was written\n", items.len()),
            false => format!(
                "{} {}: {} files, {removed} values removed. Review the archive before you send it\n",
                ui.styled(Style::Good, "✓"),
                to.display(),
                items.len()
            ),
        },
    )
}

fn json(item: &Item) -> Value {
    json!({"name": item.name, "bytes": item.text.len(), "removed": item.removed})
}

fn table(items: &[Item]) -> Table {
    let mut table = Table::new(["FILE", "BYTES", "REMOVED"]);
    for item in items {
        let plain = |text: String| (text, Style::Plain);
        let removed = if item.removed == 0 { String::new() } else { format!("{} values", item.removed) };
        table.row([(item.name.clone(), Style::Name), plain(item.text.len().to_string()), plain(removed)]);
    }
    table
}

/// The default path of the archive, in the working directory.
fn file_name() -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("cnitool-sysdump-{now}.tgz").into()
}
