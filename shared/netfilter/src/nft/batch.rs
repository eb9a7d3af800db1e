//! A transaction: the kernel makes all of its changes, or none.

use netlink::wire::Message;
use netlink::{RequestError, Socket};
use nix::errno::Errno;

use super::connection::Connection;
use super::message::{element_message, in_table, user_data};
use crate::ruleset::Element;
use crate::ruleset::uapi::*;
use crate::ruleset::{Chain, Expressions, Rule, Set, Table};

const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;

/// The comment of elements that attachments share.
const SHARED: &str = "shared";

/// Changes for one transaction.
#[derive(Debug)]
pub(super) struct Batch {
    generation: Option<u32>,
    messages: Vec<Message>,
    /// The purpose of each message, for errors.
    steps: Vec<String>,
    /// The number of sets that this batch creates. A set can be used in the batch that creates it.
    sets: u32,
}

impl Batch {
    /// A batch. With a generation, the kernel refuses it if the ruleset has changed since.
    pub(super) fn new(generation: Option<u32>) -> Self {
        Self { generation, messages: vec![begin(generation)], steps: vec!["begin".into()], sets: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.len() == 1
    }

    fn push(&mut self, step: String, message: Message) {
        self.messages.push(message);
        self.steps.push(step);
    }

    /// Creates a table unless it exists.
    pub(super) fn add_table(&mut self, table: Table) {
        let new = in_table(NFT_MSG_NEWTABLE, NLM_F_CREATE, table);
        self.push(format!("add table {}", table.name), new);
    }

    /// Removes a table with its contents.
    pub(super) fn delete_table(&mut self, table: Table) {
        let delete = in_table(NFT_MSG_DELTABLE, 0, table);
        self.push(format!("delete table {}", table.name), delete);
    }

    /// Creates a chain unless it exists.
    pub(super) fn add_chain(&mut self, table: Table, chain: Chain) {
        let mut new = in_table(NFT_MSG_NEWCHAIN, NLM_F_CREATE, table);
        new.put_str(NFTA_CHAIN_NAME, chain.name);
        if let Some(hook) = chain.hook {
            new.nest(NFTA_CHAIN_HOOK, |nest| {
                nest.put_be32(NFTA_HOOK_HOOKNUM, hook.number);
                nest.put(NFTA_HOOK_PRIORITY, &hook.priority.to_be_bytes());
            });
            new.put_str(NFTA_CHAIN_TYPE, hook.kind);
        }
        self.push(format!("add chain {}", chain.name), new);
    }

    /// Creates a chain without a hook unless it exists.
    pub(super) fn add_regular_chain(&mut self, table: Table, chain: &str) {
        let mut new = in_table(NFT_MSG_NEWCHAIN, NLM_F_CREATE, table);
        new.put_str(NFTA_CHAIN_NAME, chain);
        self.push(format!("add chain {chain}"), new);
    }

    /// Creates a set unless it exists.
    pub(super) fn add_set(&mut self, table: Table, set: &Set) {
        self.sets += 1;
        let mut new = in_table(NFT_MSG_NEWSET, NLM_F_CREATE, table);
        new.put_str(NFTA_SET_NAME, &set.name);
        new.put_be32(NFTA_SET_FLAGS, if set.data.is_empty() { 0 } else { NFT_SET_MAP });
        new.put_be32(NFTA_SET_KEY_TYPE, Set::type_number(&set.key));
        new.put_be32(NFTA_SET_KEY_LEN, Set::length(&set.key));
        if !set.data.is_empty() {
            new.put_be32(NFTA_SET_DATA_TYPE, Set::type_number(&set.data));
            new.put_be32(NFTA_SET_DATA_LEN, Set::length(&set.data));
        }
        new.put_be32(NFTA_SET_ID, self.sets);
        if set.is_in_host_order() {
            new.put(NFTA_SET_USERDATA, &[&[UDATA_KEY_BYTE_ORDER, 4][..], &HOST_ORDER.to_ne_bytes()].concat());
        }
        self.push(format!("add set {}", set.name), new);
    }

    /// Adds a rule at the end or at the start of its chain.
    pub(super) fn add_rule(&mut self, table: Table, rule: &Rule) {
        self.add_rule_to(table, rule.chain, rule.first, &rule.comment, &rule.expressions);
    }

    /// Like [`Batch::add_rule`], in a chain whose name is not static.
    pub(super) fn add_rule_to(
        &mut self,
        table: Table,
        chain: &str,
        first: bool,
        comment: &str,
        expressions: &Expressions,
    ) {
        let place = if first { 0 } else { NLM_F_APPEND };
        let new = new_rule(table, NLM_F_CREATE | place, chain, None, comment, expressions);
        self.push(format!("add a rule to chain {chain}"), new);
    }

    /// Adds a rule directly before another one of the same chain.
    pub(super) fn add_rule_before(&mut self, table: Table, next: u64, rule: &Rule) {
        let next = Some((NFTA_RULE_POSITION, next));
        let new = new_rule(table, NLM_F_CREATE, rule.chain, next, &rule.comment, &rule.expressions);
        self.push(format!("add a rule to chain {}", rule.chain), new);
    }

    /// Adds a rule directly after another one of the same chain.
    pub(super) fn add_rule_after(&mut self, table: Table, previous: u64, rule: &Rule) {
        let previous = Some((NFTA_RULE_POSITION, previous));
        let flags = NLM_F_CREATE | NLM_F_APPEND;
        let new = new_rule(table, flags, rule.chain, previous, &rule.comment, &rule.expressions);
        self.push(format!("add a rule to chain {}", rule.chain), new);
    }

    /// Replaces a rule of the same chain.
    pub(super) fn replace_rule(&mut self, table: Table, handle: u64, rule: &Rule) {
        let replaced = Some((NFTA_RULE_HANDLE, handle));
        let new = new_rule(table, NLM_F_REPLACE, rule.chain, replaced, &rule.comment, &rule.expressions);
        self.push(format!("replace rule {handle} of chain {}", rule.chain), new);
    }

    pub(super) fn delete_rule(&mut self, table: Table, chain: &str, handle: u64) {
        let mut delete = in_table(NFT_MSG_DELRULE, 0, table);
        delete.put_str(NFTA_RULE_CHAIN, chain);
        delete.put_be64(NFTA_RULE_HANDLE, handle);
        self.push(format!("delete rule {handle} of chain {chain}"), delete);
    }

    /// Removes a chain with its rules. No other chain may jump to it.
    pub(super) fn delete_chain(&mut self, table: Table, chain: &str) {
        let mut delete = in_table(NFT_MSG_DELCHAIN, 0, table);
        delete.put_str(NFTA_CHAIN_NAME, chain);
        self.push(format!("delete chain {chain}"), delete);
    }

    /// Adds an element. Refused if its key exists, unless attachments share the element.
    pub(super) fn add_element(&mut self, table: Table, element: &Element, comment: &str) {
        let (flags, comment) = match element.set.is_shared {
            true => (NLM_F_CREATE, SHARED),
            false => (NLM_F_CREATE | NLM_F_EXCL, comment),
        };
        self.element(NFT_MSG_NEWSETELEM, flags, table, element, Some(comment));
    }

    /// Removes an element. Refused if its key does not exist.
    pub(super) fn delete_element(&mut self, table: Table, element: &Element) {
        self.element(NFT_MSG_DELSETELEM, 0, table, element, None);
    }

    fn element(&mut self, kind: u16, flags: u16, table: Table, element: &Element, comment: Option<&str>) {
        let verb = if comment.is_some() { "add an element to" } else { "delete an element of" };
        let message = element_message(kind, flags, table, element, comment);
        self.push(format!("{verb} {}", element.set.name), message);
    }

    /// Sends the batch to the kernel.
    ///
    /// # Errors
    /// The first error, with the refused step. Nothing has changed then.
    pub(super) fn commit(mut self, socket: &Socket) -> Result<(), (String, RequestError)> {
        self.end();
        self.send(socket)
    }

    /// Like [`Batch::commit`]. If the kernel refuses the batch because other programs changed other tables, it is sent
    /// again.
    ///
    /// # Errors
    /// The first error, with the refused step. Nothing has changed then.
    pub(super) fn commit_on(
        mut self,
        connection: &Connection,
        tables: &[&str],
    ) -> Result<(), (String, RequestError)> {
        self.end();
        loop {
            let sent = self.send(connection);
            let Err((_, refusal)) = &sent else { return sent };
            let is_outdated = refusal.errno() == Some(Errno::ERESTART);
            let newer = self.generation.filter(|_| is_outdated).and_then(|it| connection.newer(it, tables));
            let Some(newer) = newer else { return sent };
            self.generation = Some(newer);
            self.messages[0] = begin(self.generation);
        }
    }

    fn end(&mut self) {
        if let Some(last) = self.messages.last_mut() {
            // The kernel processes the whole batch before it answers, so the last answer is enough.
            last.add_flags(netlink::uapi::NLM_F_ACK);
        }
        self.messages.push(bracket(NFNL_MSG_BATCH_END));
    }

    fn send(&mut self, socket: &Socket) -> Result<(), (String, RequestError)> {
        socket.batch(&mut self.messages).map_err(|(position, refusal)| {
            (self.steps.get(position).cloned().unwrap_or_else(|| "commit".into()), refusal)
        })
    }
}

/// A message with a rule. `other` is the attribute that names another rule by its handle: a neighbour or the replaced one.
fn new_rule(
    table: Table,
    flags: u16,
    chain: &str,
    other: Option<(u16, u64)>,
    comment: &str,
    expressions: &Expressions,
) -> Message {
    let mut new = in_table(NFT_MSG_NEWRULE, flags, table);
    new.put_str(NFTA_RULE_CHAIN, chain);
    if let Some((attribute, handle)) = other {
        new.put_be64(attribute, handle);
    }
    expressions.write(&mut new);
    new.put(NFTA_RULE_USERDATA, &user_data(comment));
    new
}

/// The start of a batch, bound to a generation if there is one.
fn begin(generation: Option<u32>) -> Message {
    let mut begin = bracket(NFNL_MSG_BATCH_BEGIN);
    if let Some(generation) = generation {
        begin.put_be32(NFNL_BATCH_GENID, generation);
    }
    begin
}

/// The start or end of a batch.
fn bracket(kind: u16) -> Message {
    let [high, low] = NFNL_SUBSYS_NFTABLES.to_be_bytes();
    Message::new(kind, 0, &[NFPROTO_UNSPEC, 0, high, low])
}
