//! `completion`: clap's script for a shell, with completion of the names of networks and namespaces added.

use std::collections::BTreeSet;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use runtime::Result;

use crate::cli::Cli;
use crate::ui::Ui;

/// Arguments that accept a network, and arguments that accept a namespace.
const NETWORK: [&str; 3] = ["network", "names", "words"];
const NETNS: &str = "netns";

/// Prints the script.
pub fn run(shell: Shell, ui: &Ui) -> Result<()> {
    ui.print(&script(shell))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cnitool", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + &filled(BASH, " | "),
        Shell::Fish => script + &filled(FISH, " "),
        Shell::Zsh => with_actions(&script),
        _ => script,
    }
}

/// clap gives positional arguments the action `_default`: a file.
fn with_actions(script: &str) -> String {
    let lines = script.lines().map(|line| {
        let argument = line.trim_start_matches(['\'', ':', '*']).split(" -- ").next().unwrap_or_default();
        let action = match argument {
            _ if !line.contains(":_default' \\") => return line.to_owned(),
            NETNS => "_cnitool_netns",
            argument if NETWORK.contains(&argument) => "_cnitool_networks",
            _ => return line.to_owned(),
        };
        line.replace(":_default' \\", &format!(":{action}' \\"))
    });
    lines.collect::<Vec<_>>().join("\n").replacen("\n_cnitool() {", &format!("{ZSH}\n_cnitool() {{"), 1)
        + "\n"
}

/// Inserts the names of commands and options into the template.
fn filled(template: &str, separator: &str) -> String {
    let cli = Cli::command();
    let having = |is_meant: &dyn Fn(&Arg) -> bool| {
        let has_one = |command: &&Command| command.get_positionals().any(is_meant);
        let names: Vec<&str> = cli.get_subcommands().filter(has_one).map(Command::get_name).collect();
        names.join(separator)
    };
    template
        .replace("NETWORK_COMMANDS", &having(&|arg| NETWORK.contains(&arg.get_id().as_str())))
        .replace("NETNS_COMMANDS", &having(&|arg| arg.get_id() == NETNS))
        .replace("VALUE_OPTIONS", &value_options(&cli).into_iter().collect::<Vec<_>>().join(separator))
}

/// The options of all commands that have a value.
fn value_options(cli: &Command) -> BTreeSet<String> {
    let commands = [cli].into_iter().chain(cli.get_subcommands());
    let arguments = commands.flat_map(|command| command.get_arguments()).filter(|arg| !arg.is_positional());
    arguments
        .filter(|arg| arg.get_action().takes_values())
        .flat_map(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            [long, short].into_iter().flatten()
        })
        .collect()
}

const BASH: &str = r#"
_cnitool_names() {
    _cnitool "$@"
    local word=${COMP_WORDS[COMP_CWORD]} command='' names=() name position=0 dir=() option i
    [[ $word != -* ]] || return 0
    # The command, and how many arguments precede the word.
    for ((i = 1; i < COMP_CWORD; i++)); do
        option=${COMP_WORDS[i]}
        case $option in
        VALUE_OPTIONS)
            # The sign = is a word of its own.
            [[ ${COMP_WORDS[i + 1]} != = ]] || i=$((i + 1))
            i=$((i + 1))
            [[ $option != --conf-dir ]] || dir=(--conf-dir "${COMP_WORDS[i]}")
            ;;
        -*) ;;
        *)
            position=$((position + 1))
            command=${command:-${COMP_WORDS[i]}}
            ;;
        esac
    done
    # A value of an option.
    ((i == COMP_CWORD)) || return 0
    case $position in
    1) case $command in NETWORK_COMMANDS) mapfile -t names < <(cnitool list networks "${dir[@]}" --color never 2>/dev/null | awk 'NR > 1 && $1 != "-" { print $1 }') ;; esac ;;
    2) case $command in NETNS_COMMANDS) mapfile -t names < <(ls /run/netns 2>/dev/null) ;; esac ;;
    esac
    # compgen -W would run a command substitution in a name.
    for name in "${names[@]}"; do
        printf -v name %q "$name"
        [[ $name != "$word"* ]] || COMPREPLY+=("$name")
    done
}
complete -F _cnitool_names -o bashdefault -o default cnitool
"#;

const FISH: &str = r#"
complete -c cnitool -n "__fish_seen_subcommand_from NETWORK_COMMANDS; and test (count (string match -v -- '--*=*' (commandline -opc))) -eq 2" \
    -a "(cnitool list networks --color never 2>/dev/null | awk 'NR > 1 && \$1 != \"-\" { print \$1 }')"
complete -c cnitool -n "__fish_seen_subcommand_from NETNS_COMMANDS; and test (count (commandline -opc)) -gt 2" \
    -a "(ls /run/netns 2>/dev/null)"
"#;

const ZSH: &str = r#"
_cnitool_networks() {
    local -a names
    names=(${(f)"$(cnitool list networks --color never 2>/dev/null | awk 'NR > 1 && $1 != "-" { print $1 }')"})
    _alternative 'networks:network:compadd -a names' 'files:file:_files'
}

_cnitool_netns() {
    local -a names
    names=(/run/netns/*(N:t))
    _alternative 'namespaces:namespace:compadd -a names' 'files:file:_files'
}
"#;

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_every_shell_completes_all_of_its_commands() {
        Cli::command().debug_assert();
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in Cli::command().get_subcommands().map(Command::get_name) {
                assert!(script.contains(command), "{shell} does not complete {command}");
            }
        }
    }

    #[test]
    fn zsh_has_an_action_for_each_argument_that_accepts_a_network() {
        let cli = Cli::command();
        let arguments = cli.get_subcommands().flat_map(Command::get_positionals);
        let networks = arguments.filter(|arg| NETWORK.contains(&arg.get_id().as_str())).count();
        assert_eq!(script(Shell::Zsh).matches(":_cnitool_networks'").count(), networks);
    }
}
