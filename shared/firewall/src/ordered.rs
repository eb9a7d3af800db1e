//! Names of chains in the order in which they were found, each once.

use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    order: Vec<String>,
    known: BTreeSet<String>,
}

impl Names {
    pub(crate) fn add(&mut self, name: &str) {
        if self.known.insert(name.to_owned()) {
            self.order.push(name.to_owned());
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(String::as_str)
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.order.retain(|name| is_kept(name));
        self.known.retain(|name| is_kept(name));
    }
}

impl FromIterator<String> for Names {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        let mut this = Self::default();
        names.into_iter().for_each(|name| this.add(&name));
        this
    }
}
