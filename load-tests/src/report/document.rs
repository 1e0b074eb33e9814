//! What the samples say, before it looks like anything: titles, sentences, tables, charts.
//!
//! Systems are compared by the ratio of their samples within each round, to the row called `bare`, or the first row where there is none.

use super::machine::Machine;
use super::raw::{Kind, Raw, Row};
use super::stats::{Spread, ratio, spread};

/// A part of the report.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A title and its level, 1 to 3.
    Title(usize, String),
    /// A sentence or more.
    Text(String),
    /// A command.
    Code(String),
    /// Sentences that stand for themselves.
    List(Vec<String>),
    /// Rows of cells below a head.
    Table(Vec<String>, Vec<Vec<String>>),
    /// Something drawn; Markdown has the table beside it.
    Chart(Chart),
}

/// Something drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// One bar a row, from the reference at 1, with whiskers.
    Ratios {
        /// What is drawn.
        title: String,
        /// Names and ratios.
        bars: Vec<(String, Spread)>,
    },
    /// One bar a row, from 0, with whiskers.
    Values {
        /// What is drawn.
        title: String,
        /// Names and values.
        bars: Vec<(String, Spread)>,
    },
    /// One line a row: a value at each quantile.
    Curves {
        /// What is drawn.
        title: String,
        /// The quantiles' names.
        points: Vec<String>,
        /// Names and values.
        lines: Vec<(String, Vec<f64>)>,
    },
}

/// The whole report.
pub fn build(raws: &[Raw], machine: &Machine) -> Vec<Block> {
    let mut blocks = vec![
        Block::Title(1, "Measurements of Rondo".to_owned()),
        Block::Text(
            "Medians over rounds; smallest and largest round in brackets. Systems take turns in each round, forwards and then backwards, and \
             are compared by their ratio within a round: it holds on other machines, the numbers do not. The system under test has one core, \
             load and upstreams another. Rondo keeps its records (SQLite) and its metrics; \
             nobody writes an access log."
                .to_owned(),
        ),
        Block::Table(
            ["processor", "cores", "memory", "kernel", "commit", "day"].map(str::to_owned).to_vec(),
            vec![vec![
                machine.cpu.clone(),
                machine.cores.to_string(),
                format!("{} MiB", machine.memory_mib),
                machine.kernel.clone(),
                machine.commit.clone(),
                machine.day.clone(),
            ]],
        ),
        Block::Text("Measured and rendered by:".to_owned()),
        Block::Code("make bench\nrondo-load-tests run all --rounds 5 && rondo-load-tests report".to_owned()),
    ];
    glance(raws, &mut blocks);
    zeros(raws, &mut blocks);
    for (kind, title) in [
        (Kind::Ab, "Side by side"),
        (Kind::Scaling, "As the configuration grows"),
        (Kind::Memory, "Memory"),
        (Kind::Failure, "When something fails"),
    ] {
        let mut of_kind = raws.iter().filter(|raw| raw.kind == kind).peekable();
        if of_kind.peek().is_some() {
            blocks.push(Block::Title(2, title.to_owned()));
        }
        of_kind.for_each(|raw| scenario(raw, &mut blocks));
    }
    blocks
}

/// Rondo by the others, scenario by scenario: what requests cost, and how many a core serves.
fn glance(raws: &[Raw], blocks: &mut Vec<Block>) {
    let sides: [(Choice, &str); 2] = [
        (
            cost,
            "Rondo's processor time divided by that of each other system; below 1 Rondo needs less.",
        ),
        (
            rate,
            "Rondo's rate on one core divided by that of each other system; above 1 Rondo serves more. \
             Where load or upstreams were the limit of Rondo's it is a lower bound.",
        ),
    ];
    let tables = sides.map(|(choice, text)| (text, by_rondo(raws, choice)));
    let mut title = Some(Block::Title(2, "At a glance".to_owned()));
    for (text, table) in tables {
        if let Some(table) = table {
            blocks.extend(title.take());
            blocks.push(Block::Text(text.to_owned()));
            blocks.push(table);
        }
    }
}

/// Chooses the metric of a scenario that is compared.
type Choice = fn(&Raw) -> Option<&str>;

/// Rondo's metric divided by that of every other system, one scenario a row; nothing where there are no two to compare.
fn by_rondo(raws: &[Raw], choice: Choice) -> Option<Block> {
    let mut peers: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    let comparable: Vec<(&Raw, &str)> = raws
        .iter()
        .filter(|raw| raw.kind == Kind::Ab)
        .filter_map(|raw| Some((raw, choice(raw)?)))
        .collect();
    for (raw, metric) in &comparable {
        for row in &raw.rows {
            let known = peers.contains(&row.label.as_str())
                || ["direct", "rondo"].contains(&row.label.as_str());
            if !known && row.samples.contains_key(*metric) {
                peers.push(&row.label);
            }
        }
    }
    for (raw, metric) in &comparable {
        let Some(rondo) = raw.rows.iter().find(|row| row.label == "rondo") else {
            continue;
        };
        let mut cells = vec![raw.name.clone(), (*metric).to_owned()];
        for peer in &peers {
            let row = raw.rows.iter().find(|row| row.label == *peer);
            let ratio = row.and_then(|row| ratio(samples(rondo, metric), samples(row, metric)));
            cells.push(ratio.map_or("–".to_owned(), |ratio| number(ratio.median)));
        }
        rows.push(cells);
    }
    let head = ["scenario", "metric"]
        .into_iter()
        .chain(peers.iter().copied())
        .map(str::to_owned);
    (!rows.is_empty() && !peers.is_empty()).then(|| Block::Table(head.collect(), rows))
}

/// What must not have happened.
fn zeros(raws: &[Raw], blocks: &mut Vec<Block>) {
    let counts = raws
        .iter()
        .flat_map(|raw| raw.zeros.iter().map(move |zero| (raw, zero)));
    let looked: usize = counts.clone().count();
    if looked == 0 {
        return;
    }
    let seen: Vec<Vec<String>> = counts
        .filter(|(_, zero)| zero.value > 0)
        .map(|(raw, zero)| {
            vec![
                raw.name.clone(),
                zero.what.clone(),
                number(zero.value as f64),
            ]
        })
        .collect();
    blocks.push(Block::Title(2, "What must not happen".to_owned()));
    if seen.is_empty() {
        blocks.push(Block::Text(format!(
            "{looked} counts of answers and sends that must be 0; all of them are."
        )));
        return;
    }
    blocks.push(Block::Text(format!(
        "{looked} counts must be 0. These are not:"
    )));
    blocks.push(Block::Table(
        ["scenario", "what", "count"].map(str::to_owned).to_vec(),
        seen,
    ));
}

fn scenario(raw: &Raw, blocks: &mut Vec<Block>) {
    blocks.push(Block::Title(3, raw.name.clone()));
    blocks.push(Block::Text(raw.what.clone()));
    blocks.push(match raw.kind {
        // Many metrics of few rows: a table that is long instead of wide.
        Kind::Failure => turned(head("", &raw.columns), medians(raw)),
        _ => Block::Table(head("", &raw.columns), medians(raw)),
    });
    if raw.kind != Kind::Failure {
        charts(raw, blocks);
    }
    if let Some(reference) =
        reference(raw).filter(|_| raw.rows.len() > 1 && raw.kind != Kind::Failure)
    {
        let columns: Vec<String> = raw
            .columns
            .iter()
            .filter(|column| is_compared(column))
            .cloned()
            .collect();
        let rows = raw.rows.iter().map(|row| {
            let cells = columns.iter().map(|metric| {
                ratio(samples(row, metric), samples(reference, metric)).map_or("–".to_owned(), text)
            });
            std::iter::once(row.label.clone()).chain(cells).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if !columns.is_empty() {
            blocks.push(Block::Text(format!("Ratios to {}:", reference.label)));
            blocks.push(Block::Table(head("", &columns), rows));
        }
    }
    let zeros = raw
        .zeros
        .iter()
        .filter(|zero| zero.value > 0 || raw.kind == Kind::Failure);
    let zeros = zeros.map(|zero| format!("{}: {}", zero.what, number(zero.value as f64)));
    let list: Vec<String> = zeros.chain(raw.notes.iter().cloned()).collect();
    if !list.is_empty() {
        blocks.push(Block::List(list));
    }
    blocks.push(Block::Code(raw.command.clone()));
}

fn head(first: &str, columns: &[String]) -> Vec<String> {
    std::iter::once(first)
        .chain(columns.iter().map(String::as_str))
        .map(str::to_owned)
        .collect()
}

/// A table whose rows are columns.
fn turned(head: Vec<String>, rows: Vec<Vec<String>>) -> Block {
    let columns = std::iter::once(head).chain(rows).map(Vec::into_iter);
    let mut columns: Vec<_> = columns.collect();
    let mut lines = std::iter::from_fn(|| {
        let line: Vec<String> = columns.iter_mut().filter_map(Iterator::next).collect();
        (!line.is_empty()).then_some(line)
    });
    let first = lines.next().unwrap_or_default();
    Block::Table(first, lines.collect())
}

fn medians(raw: &Raw) -> Vec<Vec<String>> {
    let rows = raw.rows.iter().map(|row| {
        let cells = raw.columns.iter();
        let cells = cells.map(|metric| spread(samples(row, metric)).map_or("–".to_owned(), text));
        std::iter::once(row.label.clone()).chain(cells).collect()
    });
    rows.collect()
}

fn charts(raw: &Raw, blocks: &mut Vec<Block>) {
    let reference = reference(raw);
    for metric in &raw.columns {
        let title = |what: &str| format!("{metric}{what}; {} is better", better(metric));
        let bars = |value: &dyn Fn(&Row) -> Option<Spread>| -> Vec<(String, Spread)> {
            raw.rows
                .iter()
                .filter_map(|row| Some((row.label.clone(), value(row)?)))
                .collect()
        };
        if metric.starts_with("KiB/") || (raw.kind == Kind::Memory && metric == "RSS MiB") {
            let bars = bars(&|row| spread(samples(row, metric)));
            blocks.push(Block::Chart(Chart::Values {
                title: title(""),
                bars,
            }));
        } else if let Some(reference) =
            reference.filter(|_| is_drawn(metric) && raw.kind != Kind::Memory)
        {
            let bars = bars(&|row| ratio(samples(row, metric), samples(reference, metric)));
            if bars.len() > 1 {
                let title = title(&format!(" by that of {}", reference.label));
                blocks.push(Block::Chart(Chart::Ratios { title, bars }));
            }
        }
    }
    let points: Vec<(&String, &str)> = raw
        .columns
        .iter()
        .filter_map(|metric| {
            Some((
                metric,
                metric.strip_prefix("latency ")?.strip_suffix(" us")?,
            ))
        })
        .collect();
    if points.len() > 1 {
        let lines = raw.rows.iter().filter_map(|row| {
            let values = points
                .iter()
                .map(|(metric, _)| spread(samples(row, metric)).map(|spread| spread.median));
            Some((row.label.clone(), values.collect::<Option<Vec<f64>>>()?))
        });
        blocks.push(Block::Chart(Chart::Curves {
            title: "latency in microseconds from the intended start, by quantile".to_owned(),
            points: points
                .iter()
                .map(|(_, point)| (*point).to_owned())
                .collect(),
            lines: lines.collect(),
        }));
    }
}

/// The row that the others are compared with.
fn reference(raw: &Raw) -> Option<&Row> {
    let bare = raw.rows.iter().find(|row| row.label == "bare");
    bare.or_else(|| raw.rows.iter().find(|row| row.label != "direct"))
}

fn samples<'a>(row: &'a Row, metric: &str) -> &'a [f64] {
    row.samples
        .get(metric)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The metric that tells what a request, stream or chunk costs.
fn cost(raw: &Raw) -> Option<&str> {
    raw.columns
        .iter()
        .map(String::as_str)
        .find(|metric| metric.starts_with("CPU s/"))
}

/// The metric that tells how many of them a core serves.
fn rate(raw: &Raw) -> Option<&str> {
    raw.columns
        .iter()
        .map(String::as_str)
        .find(|metric| is_rate(metric))
}

/// Rates end with `/s`; so does the processor time of a second.
fn is_rate(metric: &str) -> bool {
    metric.ends_with("/s") && !metric.starts_with("CPU")
}

/// Differences, shares and counts are told as they are; a ratio of them says nothing.
fn is_compared(metric: &str) -> bool {
    !metric.contains(" over ") && !metric.contains("share") && !metric.starts_with("requests held")
}

fn is_drawn(metric: &str) -> bool {
    metric.starts_with("CPU s/") || metric.ends_with("/s")
}

/// Whether more of it is better, or less.
fn better(metric: &str) -> &'static str {
    if is_rate(metric) { "more" } else { "less" }
}

fn text(spread: Spread) -> String {
    let Spread { min, median, max } = spread;
    if min == max {
        return number(median);
    }
    format!("{} ({}–{})", number(median), number(min), number(max))
}

/// Three digits that mean something, thousands apart.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size == size.trunc() && size < 1000.0 => 0,
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size >= 0.01 => 4,
        _ => 5,
    };
    let text = format!("{size:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> Raw {
        let mut raw = Raw::new("chat", Kind::Ab, "What.", "run chat");
        for (round, slow) in [(0, 1.0), (1, 2.0), (2, 1.0)] {
            raw.record("direct", "requests/s", 100.0 / slow);
            raw.record("rondo", "requests/s", 30.0 / slow);
            raw.record("rondo", "CPU s/10k requests", 3.0 * slow);
            raw.record("bare", "requests/s", 60.0 / slow);
            raw.record(
                "bare",
                "CPU s/10k requests",
                1.5 * slow + 0.001 * f64::from(round),
            );
        }
        raw.zero("rondo: lost", 0);
        raw
    }

    fn tables(blocks: &[Block]) -> Vec<&Vec<Vec<String>>> {
        blocks
            .iter()
            .filter_map(|block| {
                if let Block::Table(_, rows) = block {
                    Some(rows)
                } else {
                    None
                }
            })
            .collect()
    }

    #[test]
    fn what_fails_is_a_table_of_metrics_by_rows() {
        let mut raw = raw();
        raw.kind = Kind::Failure;
        let blocks = build(&[raw], &Machine::default());
        let tables = tables(&blocks);
        let turned = tables.iter().find(|rows| {
            let first = rows.first().and_then(|row| row.first());
            first.is_some_and(|metric| metric == "requests/s")
        });
        let lengths = turned.map(|rows| rows.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(lengths, Some(vec![4, 4]), "a metric, and three systems");
    }

    #[test]
    fn systems_are_compared_with_bare_within_rounds() {
        let blocks = build(&[raw()], &Machine::default());
        let tables = tables(&blocks);
        assert_eq!(
            tables[1],
            &[["chat", "CPU s/10k requests", "2.00"]
                .map(str::to_owned)
                .to_vec()],
            "at a glance"
        );
        assert_eq!(
            tables[2],
            &[["chat", "requests/s", "0.500"].map(str::to_owned).to_vec()],
            "its rate is that of bare by two"
        );
        assert!(
            tables[3].contains(
                &["rondo", "30 (15–30)", "3 (3–6)"]
                    .map(str::to_owned)
                    .to_vec()
            ),
            "{tables:?}"
        );
        assert!(
            tables[4]
                .iter()
                .any(|row| row[0] == "rondo" && row[2].starts_with("2.00")),
            "{tables:?}"
        );
        assert_eq!(tables[4][0][2], "–", "direct has no processor time");
    }

    #[test]
    fn ratios_and_rates_are_drawn_with_their_direction() {
        let blocks = build(&[raw()], &Machine::default());
        let titles: Vec<&str> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::Chart(Chart::Ratios { title, .. }) => Some(title.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(
            titles,
            [
                "requests/s by that of bare; more is better",
                "CPU s/10k requests by that of bare; less is better"
            ]
        );
    }

    #[test]
    fn a_count_above_zero_is_told_at_the_top() {
        let mut raw = raw();
        let quiet = build(&[raw.clone()], &Machine::default());
        assert!(
            quiet.iter().any(
                |block| matches!(block, Block::Text(text) if text.contains("all of them are"))
            )
        );
        raw.zero("rondo: lost", 3);
        let loud = build(&[raw], &Machine::default());
        let row = ["chat", "rondo: lost", "3"].map(str::to_owned).to_vec();
        assert!(tables(&loud).iter().any(|rows| rows.contains(&row)));
    }

    #[test]
    fn latency_columns_become_curves() {
        let mut raw = Raw::new("rate", Kind::Ab, "", "");
        for (metric, value) in [
            ("latency p50 us", 10.0),
            ("latency p99 us", 20.0),
            ("p50 over direct us", 1.0),
        ] {
            raw.record("rondo", metric, value);
        }
        let blocks = build(&[raw], &Machine::default());
        let curves = blocks.iter().find_map(|block| match block {
            Block::Chart(Chart::Curves { points, lines, .. }) => {
                Some((points.clone(), lines.clone()))
            }
            _ => None,
        });
        let lines = vec![("rondo".to_owned(), vec![10.0, 20.0])];
        assert_eq!(
            curves,
            Some((vec!["p50".to_owned(), "p99".to_owned()], lines))
        );
    }

    #[test]
    fn numbers_have_three_digits() {
        let got = [
            0.004_321, 0.0456, 0.1234, 1.0, 1.234, 45.67, 999.4, 12345.6, -1234.0, 0.0,
        ]
        .map(number);
        assert_eq!(
            got,
            [
                "0.00432", "0.0456", "0.123", "1", "1.23", "45.7", "999", "12,346", "-1,234", "0"
            ]
        );
    }
}
