//! Tables with columns as wide as their contents.

use crate::ui::{Style, Ui};

/// Rows of cells. A cell may have several lines.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub fn new(head: impl IntoIterator<Item = &'static str>) -> Self {
        Self { head: head.into_iter().collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = (String, Style)>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, each line after `indent`.
    pub fn render(&self, ui: &Ui, indent: &str) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let head: Vec<_> = self.head.iter().map(|title| ((*title).to_owned(), Style::Bold)).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let height = row.iter().map(|(cell, _)| cell.lines().count()).max().unwrap_or(1).max(1);
            for line in 0..height {
                let cells = row.iter().zip(&widths).map(|((cell, style), width)| {
                    let cell = cell.lines().nth(line).unwrap_or_default();
                    let blank = " ".repeat(width.saturating_sub(cell.chars().count()));
                    format!("{}{blank}", ui.styled(*style, cell))
                });
                let cells: Vec<String> = cells.collect();
                text.push_str(indent);
                text.push_str(cells.join("  ").trim_end());
                text.push('\n');
            }
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let lines = cells.flat_map(|(cell, _)| cell.lines().map(|line| line.chars().count()));
            lines.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        (0..self.head.len()).map(widest).collect()
    }
}
