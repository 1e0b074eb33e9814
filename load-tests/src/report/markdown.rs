//! The report as Markdown: everything but the charts, for those who read it beside the code.

use super::document::Block;

/// The document's text.
pub fn render(blocks: &[Block]) -> String {
    let mut out = String::new();
    for block in blocks {
        match block {
            Block::Title(level, text) => {
                out.push_str(&format!("{} {}\n", "#".repeat(*level), plain(text)))
            }
            Block::Text(text) => out.push_str(&format!("{}\n", plain(text))),
            Block::Code(text) => out.push_str(&format!("```sh\n{text}\n```\n")),
            Block::List(items) => {
                for item in items {
                    out.push_str(&format!("- {}\n", plain(item)));
                }
            }
            Block::Table(head, rows) => {
                out.push_str(&line(head));
                out.push_str(&format!(
                    "|---|{}\n",
                    "---:|".repeat(head.len().saturating_sub(1))
                ));
                rows.iter().for_each(|row| out.push_str(&line(row)));
            }
            Block::Chart(_) => continue,
        }
        out.push('\n');
    }
    out.push_str("Charts: [index.html](index.html). Samples: [raw/](raw/).\n");
    out
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text that means nothing to Markdown.
fn plain(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_do_not_break_their_table() {
        let table = Block::Table(
            vec!["a|b".into(), "c".into()],
            vec![vec!["<x>".into(), "1".into()]],
        );
        let text = render(&[table]);
        assert!(
            text.starts_with("| a\\|b | c |\n|---|---:|\n| &lt;x> | 1 |\n"),
            "{text}"
        );
    }
}
