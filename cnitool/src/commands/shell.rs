//! `completion` and `man`: made from the command line's own description.

use clap::CommandFactory;
use clap_complete::Shell;
use runtime::Result;

use crate::cli::Cli;
use crate::ui::Ui;

/// The script for a shell.
pub fn completion(shell: Shell, ui: &Ui) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cnitool", &mut script);
    let names = match shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        _ => "",
    };
    ui.print(&(String::from_utf8_lossy(&script).into_owned() + names))
}

/// What clap does not know: names of networks, and of namespaces.
const BASH: &str = r#"
_cnitool_names() {
    _cnitool "$@"
    local word=${COMP_WORDS[COMP_CWORD]} names=
    [[ $word != -* ]] || return 0
    case ${COMP_WORDS[1]}:$COMP_CWORD in
    add:2 | check:2 | del:2 | gc:2 | graph:2 | repair:2 | status:2 | version:2 | show:2)
        names=$(cnitool list networks --color never 2>/dev/null | awk 'NR > 1 { print $1 }')
        ;;
    add:3 | check:3 | del:3) names=$(ls /run/netns 2>/dev/null) ;;
    esac
    [ -z "$names" ] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$names" -- "$word")
}
complete -F _cnitool_names -o bashdefault -o default cnitool
"#;

const FISH: &str = r#"
complete -c cnitool -n "__fish_seen_subcommand_from add check del gc graph repair status version show" -f \
    -a "(cnitool list networks --color never 2>/dev/null | awk 'NR > 1 { print \$1 }')"
complete -c cnitool -n "__fish_seen_subcommand_from add check del" -f -a "(ls /run/netns 2>/dev/null)"
"#;

/// The manual page, for man(1): the commands follow the page of the whole.
pub fn manual(ui: &Ui) -> Result<()> {
    let mut page = Vec::new();
    let mut whole = Cli::command();
    whole.build();
    let render = |page: &mut Vec<u8>| -> std::io::Result<()> {
        // Without its list of pages for the commands: there is only this one.
        let man = clap_mangen::Man::new(whole.clone());
        man.render_title(page)?;
        man.render_name_section(page)?;
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        man.render_options_section(page)?;
        for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
            let man = clap_mangen::Man::new(command.clone());
            page.extend_from_slice(
                format!(".SH \"CNITOOL {}\"\n", command.get_name().to_uppercase()).as_bytes(),
            );
            man.render_synopsis_section(page)?;
            man.render_description_section(page)?;
            man.render_options_section(page)?;
            man.render_extra_section(page)?;
        }
        clap_mangen::Man::new(whole.clone()).render_extra_section(page)?;
        Ok(())
    };
    render(&mut page).map_err(|e| cni::Error::io("write the manual page", &e))?;
    ui.print(&String::from_utf8_lossy(&page))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_every_shell_completes_all_of_its_commands() {
        Cli::command().debug_assert();
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "cnitool", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in [
                "add", "check", "del", "gc", "repair", "status", "validate", "list", "show", "graph",
                "explain",
            ] {
                assert!(script.contains(command), "{shell} does not complete {command}");
            }
        }
    }
}
