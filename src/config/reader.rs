//! Reads settings from a tree that `check` has held against the tables.
//!
//! A value that `check` refused reads as its default, or as absent: the file is refused anyway, and reading on finds the other errors.
//! Not here: any message.

use std::time::Duration;

use super::check;
use super::node::{Entry, Node, Value};
use super::problem::{Spot, join};
use super::schema::{Field, Kind, Need, Preset, Shape};

/// One mapping of the file, or the empty one that stands for an absent key.
#[derive(Clone)]
pub(super) struct Map<'n> {
    spot: Spot,
    entries: &'n [Entry],
    shape: &'static Shape,
    /// Another mapping of the same shape, which has what this one has not.
    below: Option<Below<'n>>,
}

#[derive(Clone)]
struct Below<'n> {
    path: String,
    entries: &'n [Entry],
}

/// One item of a list.
pub(super) struct Item<T> {
    pub spot: Spot,
    pub value: T,
}

impl<'n> Map<'n> {
    /// The mapping at `node`; anything else reads as an empty one.
    pub fn new(node: &'n Node, path: String, shape: &'static Shape) -> Map<'n> {
        let entries = match &node.value {
            Value::Mapping(entries) => entries.as_slice(),
            _ => &[],
        };
        let spot = Spot { at: node.at, path };
        Map {
            spot,
            entries,
            shape,
            below: None,
        }
    }

    /// This mapping over another one: a key that is absent here is read there.
    pub fn over(self, other: Option<&Map<'n>>) -> Map<'n> {
        let below = other.map(|other| Below {
            path: other.spot.path.clone(),
            entries: other.entries,
        });
        Map { below, ..self }
    }

    /// Keys that the mapping may have, in the order of the documentation.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.shape.fields.iter().map(|field| field.key)
    }

    /// Whether the key is given in this mapping itself.
    pub fn is_own(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Where the mapping itself is.
    pub fn spot(&self) -> &Spot {
        &self.spot
    }

    /// Where the value of a key is; where the mapping is, when the key is absent.
    pub fn at(&self, key: &str) -> Spot {
        let at = self.node(key).map_or(self.spot.at, |node| node.at);
        let path = match &self.below {
            Some(below) if self.has(key) && !self.is_own(key) => &below.path,
            _ => &self.spot.path,
        };
        let path = join(path, key);
        Spot { at, path }
    }

    /// Whether the key is given, usable or not.
    pub fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Text, or its default.
    pub fn text(&self, key: &str) -> Option<&'n str> {
        match self.given_text(key) {
            Some(text) => Some(text),
            None => match self.preset(key)? {
                Preset::Word(word) => Some(word),
                Preset::Number(_) | Preset::Flag(_) | Preset::Words(_) => None,
            },
        }
    }

    /// Text that is given and usable.
    fn given_text(&self, key: &str) -> Option<&'n str> {
        check::text(&self.field(key)?.kind, self.node(key)?).ok()
    }

    /// True or false, or its default.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.node(key).and_then(check::flag) {
            Some(flag) => Some(flag),
            None => match self.preset(key)? {
                Preset::Flag(flag) => Some(flag),
                Preset::Number(_) | Preset::Word(_) | Preset::Words(_) => None,
            },
        }
    }

    /// A number, size or duration that is given and usable.
    pub fn given_number(&self, key: &str) -> Option<u64> {
        let (field, node) = (self.field(key)?, self.node(key)?);
        match field.kind {
            Kind::Size { .. } => check::size(&field.kind, node).ok(),
            Kind::Span { .. } => check::span(&field.kind, node).ok(),
            _ => check::number(&field.kind, node).ok(),
        }
    }

    /// The same, or its default; zero for a key without one.
    pub fn number(&self, key: &str) -> u64 {
        self.given_number(key).unwrap_or(match self.preset(key) {
            Some(Preset::Number(number)) => number,
            _ => 0,
        })
    }

    /// The same, or `None` where a value was refused, so that it is not compared with others.
    pub fn sound_number(&self, key: &str) -> Option<u64> {
        match self.has(key) {
            true => self.given_number(key),
            false => Some(self.number(key)),
        }
    }

    /// The same as [`Map::number`] in milliseconds.
    pub fn millis(&self, key: &str) -> Duration {
        Duration::from_millis(self.number(key))
    }

    /// A mapping; an empty one when the key is absent.
    pub fn map(&self, key: &str) -> Map<'n> {
        self.given_map(key).unwrap_or_else(|| Map {
            spot: self.at(key),
            entries: &[],
            below: None,
            shape: match self.field(key).map(|field| &field.kind) {
                Some(Kind::Mapping(shape)) => shape,
                _ => self.shape,
            },
        })
    }

    /// A mapping that is given.
    pub fn given_map(&self, key: &str) -> Option<Map<'n>> {
        let (field, node) = (self.field(key)?, self.node(key)?);
        match (&field.kind, &node.value) {
            (Kind::Mapping(shape) | Kind::MappingOrOff(shape), Value::Mapping(_)) => {
                Some(Map::new(node, self.at(key).path, shape))
            }
            _ => None,
        }
    }

    /// The mappings of a list.
    pub fn maps(&self, key: &str) -> Vec<Map<'n>> {
        let Some(Kind::List {
            of: Kind::Mapping(shape),
            ..
        }) = self.field(key).map(|field| &field.kind)
        else {
            return Vec::new();
        };
        self.items(key)
            .map(|(spot, node)| Map::new(node, spot.path, shape))
            .collect()
    }

    /// The texts of a list that are usable.
    pub fn texts(&self, key: &str) -> Vec<Item<&'n str>> {
        let Some(Kind::List { of, .. }) = self.field(key).map(|field| &field.kind) else {
            return Vec::new();
        };
        self.items(key)
            .filter_map(|(spot, node)| {
                let value = check::text(of, node).ok()?;
                Some(Item { spot, value })
            })
            .collect()
    }

    /// The numbers of a list that are usable.
    pub fn numbers(&self, key: &str) -> Vec<Item<u64>> {
        let Some(Kind::List { of, .. }) = self.field(key).map(|field| &field.kind) else {
            return Vec::new();
        };
        self.items(key)
            .filter_map(|(spot, node)| {
                let value = check::number(of, node).ok()?;
                Some(Item { spot, value })
            })
            .collect()
    }

    /// The settings under names of the operator's choice, with where each name stands.
    pub fn named(&self, key: &str) -> Vec<(Item<&'n str>, Map<'n>)> {
        let Some(Kind::Named { of, .. }) = self.field(key).map(|field| &field.kind) else {
            return Vec::new();
        };
        let entries = match self.node(key).map(|node| &node.value) {
            Some(Value::Mapping(entries)) => entries.as_slice(),
            _ => &[],
        };
        let path = join(&self.spot.path, key);
        entries
            .iter()
            .map(|entry| {
                let path = join(&path, &entry.key);
                let name = Item {
                    spot: Spot {
                        at: entry.key_at,
                        path: path.clone(),
                    },
                    value: entry.key.as_str(),
                };
                (name, Map::new(&entry.value, path, of))
            })
            .collect()
    }

    /// The value of a key as it stands in the file.
    pub fn node(&self, key: &str) -> Option<&'n Node> {
        debug_assert!(self.field(key).is_some(), "{key} is not in the tables");
        let below = self.below.iter().flat_map(|below| below.entries);
        let entry = self
            .entries
            .iter()
            .chain(below)
            .find(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    fn items(&self, key: &str) -> impl Iterator<Item = (Spot, &'n Node)> + use<'n> {
        let items = match self.node(key).map(|node| &node.value) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        let path = self.at(key).path;
        items.iter().enumerate().map(move |(index, node)| {
            let path = format!("{path}[{index}]");
            (Spot { at: node.at, path }, node)
        })
    }

    fn preset(&self, key: &str) -> Option<Preset> {
        match self.field(key)?.need {
            Need::Default(preset) => Some(preset),
            Need::Required | Need::Absent(_) => None,
        }
    }

    fn field(&self, key: &str) -> Option<&'static Field> {
        self.shape.field(key)
    }
}
