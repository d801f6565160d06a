//! The table as a JSON Schema, for editors that complete and check YAML.

use serde_json::{Map, Value, json};

use super::schema::{Key, Kind, Presence, ROOT};

/// The JSON Schema (draft 2020-12) of the config file: what each value may be. The rules between values (ids that differ,
/// references that exist) are not in it.
#[must_use]
pub fn json_schema() -> Value {
    let mut schema = Map::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!("Gantry config"));
    if let Value::Object(section) = section(ROOT) {
        schema.extend(section);
    }
    Value::Object(schema)
}

fn section(keys: &[Key]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> =
        keys.iter().filter(|key| key.presence == Presence::Required).map(|key| key.name).collect();
    let mut section = json!({"type": "object", "additionalProperties": false, "properties": properties});
    if required.is_empty() {
        // A section whose every key is a comment.
        section["type"] = json!(["object", "null"]);
    } else {
        section["required"] = json!(required);
    }
    section
}

fn property(key: &Key) -> Value {
    let mut property = kind(&key.kind);
    property["description"] = json!(key.meaning);
    if let (Presence::Default(text), false) = (key.presence, key.kind.is_container()) {
        property["default"] = match key.kind {
            Kind::Integer(..) | Kind::Number(..) | Kind::Boolean => {
                serde_json::from_str(text).expect("a test reads every default of the table")
            }
            _ => json!(text),
        };
    }
    property
}

fn kind(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Path => json!({"type": "string", "minLength": 1}),
        Kind::Segment => json!({"type": "string", "pattern": "^[^$/+#][^/+#]*$", "maxLength": 64}),
        Kind::Segments => json!({"type": "string", "pattern": "^[^$/+#][^/+#]*(/[^$/+#][^/+#]*)*$"}),
        Kind::Variable => json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
        Kind::Boolean => json!({"type": "boolean"}),
        Kind::Choice(words) => json!({"type": "string", "enum": words}),
        Kind::Integer(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Number(least, most) => json!({"type": "number", "minimum": least, "maximum": most}),
        Kind::Duration(..) => json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]*)?(us|µs|ms|s|m|h)$"}),
        Kind::Control => json!({"type": "string", "pattern": "^[a-z0-9_]+\\s*=\\s*-?[0-9]+$"}),
        Kind::Size => json!({"type": "string", "pattern": "^[0-9]{1,4}x[0-9]{1,4}$"}),
        Kind::Limit(..) => {
            json!({"type": "string", "pattern": "^(off|[0-9]+(\\.[0-9]*)?(us|µs|ms|s|m|h))$"})
        }
        Kind::Address => json!({"type": "string", "minLength": 1}),
        Kind::Broker => json!({"type": "string", "pattern": "^[mM][qQ][tT][tT][sS]?://.+$"}),
        Kind::Listen => {
            json!({"type": "string", "pattern": "^(off|[0-9.]+:[0-9]+|\\[[0-9A-Fa-f:.%]+\\]:[0-9]+)$"})
        }
        Kind::Model => {
            json!({"type": "string", "pattern": "^[^$/+#@][^/+#@]*(@[0-9]+\\.[0-9]+\\.[0-9]+.*)?$"})
        }
        Kind::Scheduling => {
            json!({"type": "string", "pattern": "^\\s*(normal|nice\\s+-?[0-9]+|(fifo|rr)\\s+[0-9]+)\\s*$"})
        }
        Kind::Map(keys) => section(keys),
        Kind::List(item) => json!({"type": "array", "minItems": 1, "items": self::kind(item)}),
    }
}
