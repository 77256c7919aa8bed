//! Label matchers as a visitor writes them. They are taken apart and written anew, so that nothing but a choice of
//! series gets into a query: no function, no other metric, no subquery.

use std::{fmt, str::FromStr};

/// Matchers in one selector.
const MAX_MATCHERS: usize = 16;
/// Bytes of a selector.
const MAX_BYTES: usize = 1024;

/// Which series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    matchers: Vec<Matcher>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Matcher {
    label: String,
    operator: &'static str,
    value: String,
}

impl FromStr for Selector {
    type Err = String;

    /// `namespace="ml",pod=~"train-.*"`, also in braces, also with the name of the metric in front, which is left out.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("The selector is longer than {MAX_BYTES} bytes."));
        }
        let text = text.trim();
        // A brace in the value of a label opens nothing.
        let braced = text.split_once('{').filter(|(before, _)| !before.contains(['"', '\'', '`', '=']));
        let inside = match braced {
            Some((name, rest)) => {
                let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':'));
                let rest = rest.strip_suffix('}').filter(|_| is_name);
                rest.ok_or_else(|| wrong("it must end with } and may have only the name of a metric before {"))?
            }
            None => text,
        };
        let mut rest = inside.trim();
        let mut matchers = Vec::new();
        while !rest.is_empty() {
            if matchers.len() >= MAX_MATCHERS {
                return Err(wrong(&format!("it has more than {MAX_MATCHERS} labels")));
            }
            let (matcher, after) = Matcher::parse(rest)?;
            matchers.push(matcher);
            rest = match after.trim_start() {
                "" => "",
                after => after.strip_prefix(',').ok_or_else(|| wrong("labels are separated by commas"))?.trim_start(),
            };
        }
        Ok(Self { matchers })
    }
}

fn wrong(why: &str) -> String {
    format!("The selector cannot be understood: {why}. Write it as namespace=\"ml\", pod=~\"train-.*\".")
}

impl Matcher {
    fn parse(text: &str) -> Result<(Self, &str), String> {
        let end = text.find(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_')).unwrap_or(text.len());
        let (label, rest) = text.split_at(end);
        if label.is_empty() || label.starts_with(|sign: char| sign.is_ascii_digit()) {
            return Err(wrong("a label begins with a letter or _"));
        }
        if label == "__name__" {
            return Err(wrong("the names of the metrics are chosen here"));
        }
        let rest = rest.trim_start();
        let operators = ["=~", "!~", "!=", "="];
        let found = operators.into_iter().find_map(|operator| Some((operator, rest.strip_prefix(operator)?)));
        let (operator, rest) = found.ok_or_else(|| wrong("behind a label stands =, !=, =~ or !~"))?;
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|sign| matches!(sign, '"' | '\'' | '`'));
        let quote = quote.ok_or_else(|| wrong("the value of a label stands in quotes"))?;
        let (value, after) =
            quoted(rest.get(1..).unwrap_or_default(), quote).ok_or_else(|| wrong("a quote is not closed"))?;
        Ok((Self { label: label.to_owned(), operator, value }, after))
    }
}

/// What stands before the closing quote, and what follows it. In back quotes nothing is an escape.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut signs = text.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            sign if sign == quote => return Some((value, text.get(at + sign.len_utf8()..)?)),
            '\\' if quote != '`' => match signs.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escaped @ ('\\' | '"' | '\'') => value.push(escaped),
                // Others are escapes of regular expressions that somebody forgot to double.
                other => value.extend(['\\', other]),
            },
            sign => value.push(sign),
        }
    }
    None
}

impl Selector {
    /// A selector of these metrics.
    pub fn of(&self, names: &[&str]) -> String {
        format!("{{__name__=~\"{}\"{self}}}", names.join("|"))
    }
}

/// The matchers behind others: `,namespace="ml"`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Matcher { label, operator, value } in &self.matchers {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, ",{label}{operator}\"{value}\"")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(text: &str) -> Result<String, String> {
        text.parse::<Selector>().map(|selector| selector.of(&["A", "B"]))
    }

    #[test]
    fn matchers_are_written_anew() {
        for (written, asked) in [
            ("", r#"{__name__=~"A|B"}"#),
            ("{}", r#"{__name__=~"A|B"}"#),
            (r#"Hostname="node-a""#, r#"{__name__=~"A|B",Hostname="node-a"}"#),
            (r#"{ a != 'x"y' , b=~`\d+`, }"#, r#"{__name__=~"A|B",a!="x\"y",b=~"\\d+"}"#),
            (r#"pod=~"a{2}""#, r#"{__name__=~"A|B",pod=~"a{2}"}"#),
            (r#"DCGM_FI_DEV_FB_USED{pod=~"a\\.b"}"#, r#"{__name__=~"A|B",pod=~"a\\.b"}"#),
        ] {
            assert_eq!(query(written).as_deref(), Ok(asked), "{written}");
        }
    }

    #[test]
    fn nothing_but_a_choice_of_series_gets_into_a_query() {
        for wrong in [
            "sum(up)",
            r#"{a="b"}[5m]"#,
            r#"{a="b"} or up"#,
            r#"a="b"} or {c="d""#,
            r#"__name__="up""#,
            r#"rate(x){a="b"}"#,
            "a=b",
            r#"a="b"#,
            r#"a="b" c="d""#,
            r#"1a="b""#,
            "{a=\"b\"",
        ] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
        assert!(query(&format!("a=\"{}\"", "x".repeat(2000))).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_anew_says_the_same(values in proptest::collection::vec(".{0,12}", 0..4)) {
            let selector = Selector {
                matchers: values.iter().map(|value| Matcher { label: "l".into(), operator: "=~", value: value.clone() }).collect(),
            };
            let text = selector.to_string();
            prop_assert_eq!(text.trim_start_matches(',').parse::<Selector>(), Ok(selector));
        }

        #[test]
        fn any_text_is_judged(text in r#"[a-z_{}="'`~!,\\ \[\]()0-9]{0,40}"#) {
            if let Ok(query) = query(&text) {
                // Outside of quotes there is one selector and nothing else.
                let mut outside = String::new();
                let mut in_quotes = false;
                let mut escaped = false;
                for sign in query.chars() {
                    match sign {
                        _ if escaped => escaped = false,
                        '\\' if in_quotes => escaped = true,
                        '"' => in_quotes = !in_quotes,
                        sign if !in_quotes => outside.push(sign),
                        _ => {}
                    }
                }
                let is_one = !in_quotes && outside.starts_with('{') && outside.ends_with('}');
                prop_assert!(is_one, "{}", query);
                prop_assert!(outside.matches(['{', '}', '[', ']', '(', ')']).count() == 2, "{}", query);
            }
        }
    }
}
