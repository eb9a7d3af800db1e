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
    ui.print(&String::from_utf8_lossy(&script))
}

/// The manual page, for man(1): the commands follow the page of the whole.
pub fn manual(ui: &Ui) -> Result<()> {
    let mut page = Vec::new();
    let mut whole = Cli::command();
    whole.build();
    let render = |page: &mut Vec<u8>| -> std::io::Result<()> {
        clap_mangen::Man::new(whole.clone()).render(page)?;
        for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
            let man = clap_mangen::Man::new(command.clone());
            page.extend_from_slice(
                format!(".SH \"CNITOOL {}\"\n", command.get_name().to_uppercase()).as_bytes(),
            );
            man.render_synopsis_section(page)?;
            man.render_description_section(page)?;
            man.render_options_section(page)?;
        }
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
