//! `man`: generated from the description of the command line.

use clap::CommandFactory;
use runtime::Result;

use crate::cli::Cli;
use crate::ui::Ui;

/// The manual page for man(1). The commands follow the general description.
pub fn run(ui: &Ui) -> Result<()> {
    let mut page = Vec::new();
    let mut whole = Cli::command();
    whole.build();
    let render = |page: &mut Vec<u8>| -> std::io::Result<()> {
        // Omit clap's list of pages for the commands: there is only this page.
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
