//! The report as one page that needs nothing else: no scripts, no other files; light or dark as the reader's system is.

use super::document::Block;
use super::svg;

const STYLE: &str = "
:root{color-scheme:light dark;--page:#fff;--ink:#1b2027;--dim:#66707c;--line:#dde1e6;--soft:#f5f6f8;--own:#c2410c;--bar:#8fa3b8;
--c0:#1d4ed8;--c1:#0f766e;--c2:#7e22ce;--c3:#a16207;--c4:#be185d;--c5:#4d7c0f;--c6:#0369a1;--c7:#57534e}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--ink:#e4e7eb;--dim:#98a2ae;--line:#323943;--soft:#1c2127;--own:#fb923c;--bar:#5b6f85;
--c0:#7ea6ff;--c1:#4fd1b5;--c2:#c79bff;--c3:#e3b341;--c4:#ff8ac0;--c5:#a5d65b;--c6:#62c0f5;--c7:#b5aea8}}
body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}
h1,h2,h3{line-height:1.2}h2{margin-top:3rem;border-bottom:1px solid var(--line);padding-bottom:.3rem}h3{margin-top:2.2rem}
nav a{margin-right:.9rem}a{color:var(--c0)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:.6rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:600}tr.own td{color:var(--own);font-weight:600}
pre{background:var(--soft);padding:.5rem .8rem;overflow-x:auto;font-size:13px}li{color:var(--dim)}
figure{margin:1rem 0}figcaption{font-size:13px;color:var(--dim)}svg{max-width:100%;height:auto}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .dim{fill:var(--dim)}svg .axis{stroke:var(--line)}svg .one{stroke:var(--dim)}
svg .bar{fill:var(--bar)}svg .own{fill:var(--own)}svg .whisker{stroke:var(--ink)}svg .curve{fill:none;stroke-width:1.6}
";

/// The document's page.
pub fn render(blocks: &[Block]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Measurements of Rondo</title><style>{STYLE}</style></head><body>\n"
    );
    for (at, block) in blocks.iter().enumerate() {
        out.push_str(&html(block));
        if at == 0 {
            out.push_str(&contents(blocks));
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn contents(blocks: &[Block]) -> String {
    let links = blocks.iter().filter_map(|block| match block {
        Block::Title(2 | 3, text) => {
            Some(format!("<a href=\"#{}\">{}</a>", id(text), escape(text)))
        }
        _ => None,
    });
    format!("<nav>{}</nav>\n", links.collect::<Vec<_>>().join(" "))
}

fn html(block: &Block) -> String {
    match block {
        Block::Title(level, text) => format!(
            "<h{level} id=\"{}\">{}</h{level}>\n",
            id(text),
            escape(text)
        ),
        Block::Text(text) => format!("<p>{}</p>\n", escape(text)),
        Block::Code(text) => format!("<pre>{}</pre>\n", escape(text)),
        Block::List(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| format!("<li>{}</li>", escape(item)))
                .collect();
            format!("<ul>{}</ul>\n", items.concat())
        }
        Block::Table(head, rows) => {
            let cells = |cells: &[String], tag: &str| -> String {
                cells
                    .iter()
                    .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
                    .collect()
            };
            let rows = rows.iter().map(|row| {
                let own = row.first().is_some_and(|label| label == "rondo");
                format!(
                    "<tr{}>{}</tr>\n",
                    if own { " class=\"own\"" } else { "" },
                    cells(row, "td")
                )
            });
            let rows: String = rows.collect();
            format!(
                "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>\n{rows}</tbody></table></div>\n",
                cells(head, "th")
            )
        }
        Block::Chart(chart) => {
            let (title, drawing) = svg::draw(chart);
            format!(
                "<figure>{drawing}<figcaption>{}</figcaption></figure>\n",
                escape(&title)
            )
        }
    }
}

fn id(text: &str) -> String {
    text.to_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Text that means nothing to HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::Chart;
    use crate::report::stats::Spread;

    const HOSTILE: &str = "<script>alert('\"&')</script>";

    #[test]
    fn no_text_becomes_markup() {
        let text = || HOSTILE.to_owned();
        let spread = Spread {
            min: 1.0,
            median: 2.0,
            max: 3.0,
        };
        let page = render(&[
            Block::Title(2, text()),
            Block::Text(text()),
            Block::Code(text()),
            Block::List(vec![text()]),
            Block::Table(vec![text()], vec![vec![text()]]),
            Block::Chart(Chart::Ratios {
                title: text(),
                bars: vec![(text(), spread)],
            }),
            Block::Chart(Chart::Values {
                title: text(),
                bars: vec![(text(), spread)],
            }),
            Block::Chart(Chart::Curves {
                title: text(),
                points: vec![text(), text()],
                lines: vec![(text(), vec![1.0, 2.0])],
            }),
        ]);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&#39;&quot;&amp;&#39;)"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = render(&[Block::Text("x".to_owned())]);
        for word in ["src=", "http:", "https:", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
