//! Whether the reference's rules of an attachment are as it left them: its containers run on when our plugins take its place, and
//! CHECK asks for them, too.

pub(crate) mod chains;
pub(crate) mod names;

use cni::Result;

use crate::iptables;
use crate::kind::Rules;
use crate::nft::Nft;
use crate::owner::Owner;

/// Whether they are there, by whichever of its backends, and in whichever variant of iptables.
pub(crate) fn has(owner: &Owner, rules: &dyn Rules) -> Result<bool> {
    let (Some(reference), table) = (rules.reference(), rules.kind().facts.reference.table) else {
        return Ok(false);
    };
    if let Ok(nft) = Nft::open()
        && nft.has_reference(owner, reference).map_err(|r| r.during("look for", "rules of the reference"))?
    {
        return Ok(true);
    }
    iptables::legacy::has_reference(owner, reference, table)
}
