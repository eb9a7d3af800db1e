//! Required parts of the kernel, and the remedy if one is missing.

use cni::{Code, Error, Result, ResultExt};
use iface::Namespace;
use netlink::tc::Redirect;
use netlink::{LinkKind, Netlink, NewLink};
use netns::NetNs;
use nix::errno::Errno;

use crate::limit::{HANDLE, Limit};

/// A part of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Token bucket filters.
    Tbf,
    /// Ifbs.
    Ifb,
    /// clsact.
    Clsact,
    /// Filters and redirection.
    Redirect,
}

/// Adds the missing module to an error, if that is its cause.
pub fn explained(part: Part, error: netlink::Error) -> Error {
    let (what, module) = match part {
        Part::Tbf => ("queueing discipline tbf", "sch_tbf"),
        Part::Ifb => ("links of kind ifb", "ifb"),
        Part::Clsact => ("queueing discipline clsact, for filters on incoming packets", "sch_ingress"),
        Part::Redirect if error.kernel_text().is_some_and(|text| text.contains("classifier")) => {
            ("filters of kind u32", "cls_u32")
        }
        Part::Redirect => ("action mirred, which redirects packets", "act_mirred"),
    };
    let missing = matches!(error.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP));
    let error = Error::from(error);
    if missing { error.detail(format!("this kernel has no {what}: run modprobe {module}")) } else { error }
}

/// Tries all parts in a temporary network namespace.
///
/// # Errors
/// Code 50, naming the missing part.
pub fn has_all_parts() -> Result<()> {
    let tried = NetNs::scratch(|| Namespace::host().and_then(|scratch| try_all(&scratch.nl)));
    tried.context(|| "check the features of the kernel").and_then(|tried| tried).code(Code::NotAvailable)
}

fn try_all(nl: &Netlink) -> Result<()> {
    let made = nl.create_link(&NewLink::new("ifb", LinkKind::Ifb));
    let ifb = made.map_err(|e| explained(Part::Ifb, e))?;
    let tbf = Limit { rate: 1 << 20, burst: 1 << 20 }.tbf(25);
    nl.add_tbf(&ifb, HANDLE, &tbf).map_err(|e| explained(Part::Tbf, e))?;
    nl.add_clsact(&ifb).map_err(|e| explained(Part::Clsact, e))?;
    let redirect = Redirect { precedence: 1, class: 0, to: ifb.index };
    nl.add_redirect(&ifb, &redirect).map_err(|e| explained(Part::Redirect, e))
}
