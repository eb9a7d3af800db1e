//! Scope of a GC: which resources of a network it deletes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Attachment, Attachments, ContainerId, IfName};

/// A resource of one attachment that GC may delete: a link, a lease, rules, a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// `link`, `lease`, `host ports`, ...
    pub kind: String,
    /// Name of a link, a leased address, or path of a file. Rules have none.
    #[serde(default)]
    pub name: String,
    /// Container id. Empty if unknown.
    #[serde(rename = "containerID", default)]
    pub container: String,
    /// Interface in the container. Empty if unknown.
    #[serde(default)]
    pub ifname: String,
    /// Network namespace of the container, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<PathBuf>,
    /// An address of the container, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

impl Resource {
    /// A resource of a kind, with its name.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        let (container, ifname) = (String::new(), String::new());
        Self { kind: kind.into(), name: name.into(), container, ifname, netns: None, address: None }
    }

    /// Sets container and interface.
    #[must_use]
    pub fn of(self, container: &str, ifname: &str) -> Self {
        Self { container: container.to_owned(), ifname: ifname.to_owned(), ..self }
    }

    /// Sets the container's network namespace.
    #[must_use]
    pub fn netns(self, path: &Path) -> Self {
        Self { netns: Some(path.to_owned()), ..self }
    }

    /// Sets an address of the container.
    #[must_use]
    pub fn address(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
    }

    /// Its attachment. `None` if container or interface are unknown or not valid.
    pub fn attachment(&self) -> Option<Attachment> {
        let container = ContainerId::parse(&self.container).ok()?;
        Some(Attachment { container, ifname: IfName::parse(&self.ifname).ok()? })
    }

    /// Whether it belongs to one of these attachments.
    pub fn is_of(&self, attachments: &Attachments) -> bool {
        attachments.includes(&self.container, &self.ifname)
    }
}

/// Scope of a GC.
///
/// A plugin calls [`Scope::should_delete`] for each resource that it finds. In a dry run the result is always false, and the resources are
/// recorded, so a dry run and a GC find the same.
#[derive(Debug, Default)]
pub struct Scope {
    valid: Attachments,
    /// `None`: all attachments that are not valid. Otherwise only these.
    stale: Option<Attachments>,
    /// Containers with other attachments. They keep resources whose interface is unknown.
    kept_containers: BTreeSet<String>,
    /// Resources to delete regardless of their owner.
    names: BTreeSet<String>,
    dry_run: bool,
    taken: RefCell<BTreeSet<Resource>>,
}

impl Scope {
    /// The specification's GC: everything of attachments that are not valid.
    pub fn all_but(valid: Attachments) -> Self {
        Self { valid, ..Self::default() }
    }

    /// Only resources of these attachments. An attachment created meanwhile keeps its resources.
    pub fn only(stale: Attachments) -> Self {
        Self { stale: Some(stale), ..Self::default() }
    }

    /// Except resources of these containers whose interface is unknown: they may belong to an attachment that is not listed.
    #[must_use]
    pub fn except_unknown_of(self, containers: impl IntoIterator<Item = String>) -> Self {
        Self { kept_containers: containers.into_iter().collect(), ..self }
    }

    /// Also resources with these names, regardless of their owner.
    #[must_use]
    pub fn and_named(self, names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), ..self }
    }

    /// A dry run, which deletes nothing.
    #[must_use]
    pub fn dry(self) -> Self {
        Self { dry_run: true, ..self }
    }

    /// Whether it is a dry run, in which nothing may be deleted, not even resources without an owner.
    pub fn is_dry(&self) -> bool {
        self.dry_run
    }

    /// The attachments to keep.
    pub fn valid(&self) -> &Attachments {
        &self.valid
    }

    /// The only attachments to delete, if there is such a list.
    pub fn stale(&self) -> Option<&Attachments> {
        self.stale.as_ref()
    }

    /// The containers of [`Scope::except_unknown_of`].
    pub fn kept_containers(&self) -> impl Iterator<Item = &String> {
        self.kept_containers.iter()
    }

    /// Names of resources to delete regardless of their owner.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter()
    }

    /// Whether to delete a resource now.
    pub fn should_delete(&self, resource: Resource) -> bool {
        self.note(self.is_stale(&resource), resource)
    }

    /// Like [`Scope::should_delete`], also in a dry run, for a caller that records the resource later ([`Scope::add`]).
    pub fn is_stale(&self, resource: &Resource) -> bool {
        let is_stale =
            !resource.is_of(&self.valid) && self.stale.as_ref().is_none_or(|stale| resource.is_of(stale));
        let may_be_others = resource.ifname.is_empty() && self.kept_containers.contains(&resource.container);
        is_stale && !may_be_others || self.names.contains(&resource.name)
    }

    /// Records a resource in a dry run, for a caller that deletes nothing anyway.
    pub fn list(&self, resource: Resource) {
        debug_assert!(self.dry_run, "what is listed is not removed");
        self.should_delete(resource);
    }

    /// Like [`Scope::should_delete`], for a resource that identifies its attachment by a hash only.
    pub fn should_delete_hashed(&self, resource: Resource, is_owner: impl Fn(&Attachment) -> bool) -> bool {
        let owner = |all: &Attachments| all.iter().find(|at| is_owner(at)).cloned();
        if owner(&self.valid).is_some() {
            return false;
        }
        let Some(stale) = &self.stale else { return self.note(true, resource) };
        if self.names.contains(&resource.name) {
            return self.note(true, resource);
        }
        let Some(at) = owner(stale) else { return false };
        self.note(true, resource.of(&at.container, &at.ifname))
    }

    /// Whether to delete state of an attachment together with a resource that another plugin lists.
    pub fn loses(&self, container: &str, ifname: &str) -> bool {
        let is_stale = self.stale.as_ref().is_none_or(|stale| stale.contains(container, ifname));
        is_stale && !self.dry_run && !self.valid.contains(container, ifname)
    }

    /// Adds resources that another process deleted, or would delete.
    pub fn add(&self, resources: impl IntoIterator<Item = Resource>) {
        self.taken.borrow_mut().extend(resources);
    }

    /// Deleted resources, or those that would be.
    pub fn taken(&self) -> Vec<Resource> {
        self.taken.borrow().iter().cloned().collect()
    }

    fn note(&self, is_stale: bool, resource: Resource) -> bool {
        if is_stale {
            self.taken.borrow_mut().insert(resource);
        }
        is_stale && !self.dry_run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_known_owner_is_removed_only_by_its_own_name() {
        let of_nobody = || Resource::new("link", "veth1");
        assert!(!Scope::only(attachments(&[])).should_delete_hashed(of_nobody(), |_| false));
        let named = Scope::only(attachments(&[])).and_named(["veth1".to_owned()]);
        assert!(named.should_delete_hashed(of_nobody(), |_| false));
    }

    fn attachments(names: &[&str]) -> Attachments {
        let one = |name: &&str| Attachment {
            container: ContainerId::parse(name).unwrap(),
            ifname: IfName::parse("eth0").unwrap(),
        };
        names.iter().map(one).collect()
    }

    fn link(container: &str) -> Resource {
        Resource::new("link", format!("veth-{container}")).of(container, "eth0")
    }

    #[test]
    fn with_valid_attachments_all_others_lose_their_resources() {
        let scope = Scope::all_but(attachments(&["kept"]));
        assert!(!scope.should_delete(link("kept")) && scope.should_delete(link("gone")));
        assert!(scope.should_delete(Resource::new("lease", "10.1.2.3").of("gone", "")));
        assert!(!scope.should_delete(Resource::new("lease", "10.1.2.4").of("kept", "")));
        assert!(scope.should_delete_hashed(Resource::new("link", "x"), |at| &*at.container == "gone"));
        assert!(!scope.should_delete_hashed(Resource::new("link", "x"), |at| &*at.container == "kept"));
    }

    #[test]
    fn with_stale_attachments_unlisted_attachments_keep_everything() {
        let scope = Scope::only(attachments(&["gone"]));
        assert!(scope.should_delete(link("gone")) && !scope.should_delete(link("new")));
        assert!(!scope.should_delete(Resource::new("link", "of nobody")));
        assert!(scope.should_delete_hashed(Resource::new("link", "x"), |at| &*at.container == "gone"));
        assert!(!scope.should_delete_hashed(Resource::new("link", "x"), |at| &*at.container == "new"));
        assert_eq!(
            scope.taken().iter().map(|resource| &*resource.container).collect::<Vec<_>>(),
            ["gone", "gone"]
        );
    }

    #[test]
    fn a_resource_of_an_unknown_interface_is_kept_if_its_container_has_another_attachment() {
        let of = |ifname: &str| Resource::new("lease", "10.1.2.3").of("gone", ifname);
        let scope = || Scope::only(attachments(&["gone"]));
        assert!(scope().should_delete(of("")) && scope().should_delete(of("eth0")));
        let scope = || scope().except_unknown_of(["gone".to_owned()]);
        assert!(!scope().should_delete(of("")) && scope().should_delete(of("eth0")));
        assert!(scope().and_named(["10.1.2.3".to_owned()]).should_delete(of("")));
    }

    #[test]
    fn a_dry_run_removes_nothing_and_lists_what_a_gc_would() {
        let dry = Scope::only(attachments(&["gone"])).dry();
        assert!(!dry.should_delete(link("gone")) && !dry.should_delete(link("new")));
        let real = Scope::only(attachments(&["gone"]));
        assert!(real.should_delete(link("gone")) && !real.should_delete(link("new")));
        assert_eq!(dry.taken(), real.taken());
    }
}
