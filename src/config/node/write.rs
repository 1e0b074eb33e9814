//! Writes a tree as YAML again, for the readers of scripts that stand inside the configuration.

use super::{Node, Plain, Value, plain};
use crate::config::problem::Position;

impl Node {
    /// This subtree as YAML on one line: the same text wherever in the file it stands.
    pub fn to_yaml(&self) -> String {
        let mut out = Yaml::default();
        self.write_yaml(&mut out);
        out.text
    }

    /// The same with each part on its own line, and mostly in its own column, of the file. So a place that its reader names is a
    /// place in the file.
    pub fn to_yaml_in_place(&self) -> String {
        let mut out = Yaml {
            here: Some(Position::START),
            ..Yaml::default()
        };
        self.write_yaml(&mut out);
        out.text
    }

    fn write_yaml(&self, out: &mut Yaml) {
        out.move_to(self.at);
        match &self.value {
            Value::Broken => out.push("null"),
            Value::Scalar { text, plain: true } => match plain(text) {
                Plain::Null => out.push("null"),
                Plain::Flag(_) | Plain::Integer | Plain::Float => out.push(text),
                Plain::Text => out.push_quoted(text),
            },
            Value::Scalar { text, plain: false } => out.push_quoted(text),
            Value::List(items) => {
                out.push("[");
                for (index, item) in items.iter().enumerate() {
                    out.push(if index > 0 { ", " } else { "" });
                    item.write_yaml(out);
                }
                out.push("]");
            }
            Value::Mapping(entries) => {
                out.push("{");
                for (index, entry) in entries.iter().enumerate() {
                    out.push(if index > 0 { ", " } else { "" });
                    out.move_to(entry.key_at);
                    out.push_key(&entry.key);
                    out.push(": ");
                    entry.value.write_yaml(out);
                }
                out.push("}");
            }
        }
    }
}

/// YAML in the making.
#[derive(Default)]
struct Yaml {
    text: String,
    /// Where the next character goes; `None` when places do not matter.
    here: Option<Position>,
}

impl Yaml {
    fn push(&mut self, part: &str) {
        self.text.push_str(part);
        if let Some(here) = &mut self.here {
            here.column += part.chars().count();
        }
    }

    /// A JSON string is a double-quoted YAML scalar.
    fn push_quoted(&mut self, text: &str) {
        self.push(&serde_json::Value::from(text).to_string());
    }

    /// Usual keys stand without quotes, so that what follows keeps its column.
    fn push_key(&mut self, key: &str) {
        let usual = key.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
        if usual && plain(key) == Plain::Text {
            self.push(key);
        } else {
            self.push_quoted(key);
        }
    }

    /// Fills up with line breaks and spaces as far as the place lies ahead.
    fn move_to(&mut self, at: Position) {
        let Some(here) = &mut self.here else { return };
        while here.line < at.line {
            self.text.push('\n');
            *here = Position {
                line: here.line + 1,
                column: 1,
            };
        }
        while here.line == at.line && here.column < at.column {
            self.text.push(' ');
            here.column += 1;
        }
    }
}
