//! The envelope of an answer, as a stream: only the labels and the samples of one series are held at a time.

use super::{Answer, Labels, MAX_LABELS, MAX_POINTS, Series};
use crate::json::Scalar;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// One answer.
pub(super) struct Document<'a>(pub(super) &'a mut Answer);

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer of a query")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let (mut is_error, mut kind, mut why) = (false, None, None);
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "status" => is_error = entries.next_value::<Scalar>()?.as_text() == Some("error"),
                "errorType" => kind = entries.next_value::<Scalar>()?.as_text().map(str::to_owned),
                "error" => why = entries.next_value::<Scalar>()?.as_text().map(str::to_owned),
                "data" => entries.next_value_seed(Data(self.0))?,
                "warnings" => entries.next_value_seed(Sayings(self.0))?,
                "isPartial" => {
                    if entries.next_value::<serde_json::Value>()? == serde_json::Value::Bool(true) {
                        self.0.say("the answer is partial");
                    }
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        if is_error {
            let kind = kind.unwrap_or_else(|| "error".to_owned());
            self.0.failure = Some(format!("{kind}: {}", why.unwrap_or_else(|| "no reason given".to_owned())));
        }
        Ok(())
    }
}

/// `data` of an answer.
struct Data<'a>(&'a mut Answer);

impl<'de> DeserializeSeed<'de> for Data<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Data<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of a query")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            if key == "result" {
                entries.next_value_seed(Rows(self.0))?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The list of series; of a scalar or a text there is none.
struct Rows<'a>(&'a mut Answer);

impl<'de> DeserializeSeed<'de> for Rows<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Rows<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Row(self.0))?.is_some() {}
        Ok(())
    }
}

/// One series. A number or text in its place (the result of a scalar) is passed over.
struct Row<'a>(&'a mut Answer);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series")
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        // The brace is taken.
        let mut series = Series { begins: self.0.place.get().saturating_sub(1), ..Series::default() };
        while let Some(key) = entries.next_key::<String>()? {
            match key.as_str() {
                "metric" => series.labels = Some(entries.next_value_seed(LabelSet)?),
                "values" | "value" if series.labels.as_ref().is_none_or(Answer::wants) => {
                    // What was held of a series that breaks off is used.
                    let read = entries.next_value_seed(Points { points: &mut series.points, is_list: key == "values" });
                    if let Err(error) = read {
                        self.0.series(series);
                        return Err(error);
                    }
                }
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        self.0.series(series);
        Ok(())
    }
}

/// Names and values of labels.
struct LabelSet;

impl<'de> DeserializeSeed<'de> for LabelSet {
    type Value = Labels;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Labels, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelSet {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Labels, A::Error> {
        let mut labels = Labels::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value::<Scalar>()?;
            if let Some(value) = value.as_text().filter(|_| labels.len() < MAX_LABELS) {
                let value = value.chars().filter(|sign| !sign.is_control()).collect();
                labels.insert(name, value);
            }
        }
        Ok(labels)
    }
}

/// Samples of a series: a list of pairs, or one pair.
struct Points<'a> {
    points: &'a mut Vec<(i64, f64)>,
    is_list: bool,
}

impl<'de> DeserializeSeed<'de> for Points<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Points<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("samples")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let points = self.points;
        if !self.is_list {
            points.extend(pair(&mut items)?);
            return Ok(());
        }
        while let Some(point) = items.next_element_seed(Pair)? {
            if points.len() < MAX_POINTS {
                points.extend(point);
            }
        }
        Ok(())
    }
}

/// `[1700000000.123, "21000"]`.
struct Pair;

impl<'de> DeserializeSeed<'de> for Pair {
    type Value = Option<(i64, f64)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pair {
    type Value = Option<(i64, f64)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time and a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        pair(&mut items)
    }
}

/// Time in microseconds, and value; `None` if one of them is none.
fn pair<'de, A: SeqAccess<'de>>(items: &mut A) -> Result<Option<(i64, f64)>, A::Error> {
    let time = items.next_element::<Number>()?.and_then(|Number(time)| time);
    let value = items.next_element::<Number>()?.and_then(|Number(value)| value);
    while items.next_element::<IgnoredAny>()?.is_some() {}
    let Some((time, value)) = time.zip(value) else { return Ok(None) };
    // Beyond the year 10000, or before 1970, is no time of a sample.
    #[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
    let micros = (0.0..2.6e11).contains(&time).then(|| (time * 1e6).round() as i64);
    Ok(micros.map(|micros| (micros, value)))
}

/// A number, or a text that is one; `None` for anything else, `NaN` and the infinities.
struct Number(Option<f64>);

impl<'de> serde::Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

#[allow(clippy::cast_precision_loss, reason = "a count of MiB or seconds is far below 2^53")]
impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Number, E> {
        Ok(Number(Some(n).filter(|n| n.is_finite())))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Number, E> {
        Ok(Number(Some(n as f64)))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Number, E> {
        Ok(Number(Some(n as f64)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
        Ok(Number(text.trim().parse().ok().filter(|n: &f64| n.is_finite())))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_unit<E: Error>(self) -> Result<Number, E> {
        Ok(Number(None))
    }
}

/// What the server has to say of its answer.
struct Sayings<'a>(&'a mut Answer);

impl<'de> DeserializeSeed<'de> for Sayings<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sayings<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of warnings")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(text) = items.next_element::<Scalar>()? {
            if let Some(text) = text.as_text() {
                self.0.say(text);
            }
        }
        Ok(())
    }
}
