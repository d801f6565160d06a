//! Reads typed values out of a [`yaml`](crate::yaml) tree and collects what is wrong with them.
//!
//! Every read returns an `Option`: `None` means that a mistake was noted. The caller goes on with the next value, so
//! one run tells every mistake.

use std::ops::RangeInclusive;

use crate::yaml::{Entry, Node, Place, Problems, Value, join, nearest, shown};

/// Collects mistakes.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub problems: Problems,
}

/// A value and the path of its key, such as `input.shape`.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub node: &'a Node,
    pub path: String,
}

/// The entries of a map whose keys were checked.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    place: Place,
    path: String,
    entries: &'a [Entry],
}

impl Field<'_> {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> String {
        match &self.node.value {
            Value::Scalar(scalar) => format!("`{}`", shown(&scalar.text)),
            value => value.kind_name().to_owned(),
        }
    }

    /// Whether it is a single value.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.node.value, Value::Scalar(_))
    }
}

impl<'a> Fields<'a> {
    /// The value of `name`, if it is there.
    pub(super) fn optional(&self, name: &str) -> Option<Field<'a>> {
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        Some(Field { node: &entry.node, path: join(&self.path, name) })
    }

    /// The value of `name`, which must be there.
    pub(super) fn required(&self, reader: &mut Reader, name: &str) -> Option<Field<'a>> {
        let found = self.optional(name);
        if found.is_none() {
            reader.problem(self.place, &self.path, format!("`{name}` is missing"));
        }
        found
    }

    /// Every entry, for a map whose keys are names that the author chose.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a Entry, Field<'a>)> + '_ {
        self.entries
            .iter()
            .map(|entry| (entry, Field { node: &entry.node, path: join(&self.path, &entry.key) }))
    }
}

impl Reader {
    /// Notes a mistake.
    pub(super) fn problem(&mut self, place: Place, path: &str, message: impl Into<String>) {
        self.problems.tell(place, path, message);
    }

    /// Notes that a value is wrong; always `None`.
    pub(super) fn wrong<T>(&mut self, field: &Field<'_>, message: impl Into<String>) -> Option<T> {
        self.problem(field.node.place, &field.path, message);
        None
    }

    /// A map with only these keys.
    pub(super) fn map<'a>(&mut self, field: &Field<'a>, known: &[&str]) -> Option<Fields<'a>> {
        let fields = self.names(field)?;
        for entry in fields.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let hint = match nearest(&entry.key, known.iter().copied()) {
                Some(key) => format!("did you mean `{key}`?"),
                None => format!("the keys here are {}", known.join(", ")),
            };
            let key = shown(&entry.key);
            self.problem(entry.place, &fields.path, format!("`{key}` is not a known key; {hint}"));
        }
        Some(fields)
    }

    /// A map whose keys are names that the author chose.
    pub(super) fn names<'a>(&mut self, field: &Field<'a>) -> Option<Fields<'a>> {
        let Value::Map(entries) = &field.node.value else {
            return self.wrong(field, format!("must be a map of keys and values, not {}", field.kind()));
        };
        Some(Fields { place: field.node.place, path: field.path.clone(), entries })
    }

    /// The items of a list.
    pub(super) fn items<'a>(&mut self, field: &Field<'a>) -> Option<Vec<Field<'a>>> {
        let Value::List(items) = &field.node.value else {
            return self.wrong(field, format!("must be a list, not {}", field.kind()));
        };
        let item = |(index, node)| Field { node, path: format!("{}[{index}]", field.path) };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// A text that is not empty.
    pub(super) fn text<'a>(&mut self, field: &Field<'a>) -> Option<&'a str> {
        match &field.node.value {
            Value::Scalar(scalar) if !scalar.text.is_empty() => Some(&scalar.text),
            Value::Scalar(_) => self.wrong(field, "must not be empty"),
            _ => self.wrong(field, format!("must be a text, not {}", field.kind())),
        }
    }

    /// A finite number.
    pub(super) fn number(&mut self, field: &Field<'_>) -> Option<f32> {
        let number = self.plain(field).and_then(|text| text.parse::<f32>().ok());
        match number.filter(|number| number.is_finite()) {
            Some(number) => Some(number),
            None => self.wrong(field, format!("must be a number, not {}", field.kind())),
        }
    }

    /// A finite number in a range.
    pub(super) fn number_in(&mut self, field: &Field<'_>, range: RangeInclusive<f32>) -> Option<f32> {
        let number = self.number(field)?;
        if range.contains(&number) {
            return Some(number);
        }
        let (least, most) = (range.start(), range.end());
        self.wrong(field, format!("must be a number from {least} to {most}, not {number}"))
    }

    /// A whole number.
    pub(super) fn integer(&mut self, field: &Field<'_>) -> Option<i64> {
        match self.plain(field).and_then(|text| text.parse().ok()) {
            Some(number) => Some(number),
            None => self.wrong(field, format!("must be a whole number, not {}", field.kind())),
        }
    }

    /// One of these words.
    pub(super) fn choice<T: Copy>(&mut self, field: &Field<'_>, choices: &[(&str, T)]) -> Option<T> {
        let text = match &field.node.value {
            Value::Scalar(scalar) => scalar.text.as_str(),
            _ => "",
        };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let hint = match nearest(text, names.iter().copied()) {
            Some(name) => format!("; did you mean `{name}`?"),
            None => String::new(),
        };
        let must = match names.as_slice() {
            [only] => format!("must be `{only}`"),
            _ => format!("must be one of {}", names.join(", ")),
        };
        self.wrong(field, format!("{must}, not {}{hint}", field.kind()))
    }

    /// The text of a single value that is not in quotes.
    fn plain<'a>(&self, field: &Field<'a>) -> Option<&'a str> {
        match &field.node.value {
            Value::Scalar(scalar) if !scalar.quoted => Some(&scalar.text),
            _ => None,
        }
    }
}
