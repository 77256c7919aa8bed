//! What a provider says of a person, and who of them may come in at all. What is said stays text: it is compared and
//! shown, and decides nothing else.

use super::words::{Answered, Claims};
use crate::{
    accounts::{Claimed, UserName},
    visible,
};
use openidconnect::{EndUserEmail, EndUserUsername, SubjectIdentifier};
use serde_json::Value;

/// Longest subject that the standard allows.
const LONGEST_SUBJECT: usize = 255;
/// Characters of a name that are kept.
const NAME_CHARS: usize = 120;

/// Somebody, as the provider knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Which provider says so.
    pub issuer: String,
    /// Stays the same for ever, and is given to nobody else.
    pub subject: String,
    /// An address that the provider has verified; one that it has not could be anybody's.
    pub email: Option<String>,
    /// Chosen by the person, perhaps to look like another.
    pub user_name: Option<String>,
    /// Groups; `None` where the provider says nothing of any.
    pub groups: Option<Vec<String>>,
}

/// Who may come in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// Domains of verified e-mail addresses, in lower case; empty for any, and for none.
    pub domains: Vec<String>,
    /// Groups of which one is enough; empty for any, and for none.
    pub groups: Vec<String>,
    /// Where the provider names a person's groups.
    pub groups_claim: String,
}

impl Person {
    /// Who a checked ID token is about. `None` if its subject is none.
    pub fn of_token(claims: &Claims, issuer: &str, groups_claim: &str) -> Option<Self> {
        let said = Said {
            subject: claims.subject(),
            email: claims.email(),
            is_verified: claims.email_verified(),
            user_name: claims.preferred_username(),
            groups: claims.additional_claims().claims.get(groups_claim),
        };
        said.person(issuer)
    }

    /// The same person, with what the provider says elsewhere of it where the token says nothing.
    #[must_use]
    pub fn and_what_is_said_elsewhere(self, answered: &Answered, groups_claim: &str) -> Self {
        let said = Said {
            subject: answered.subject(),
            email: answered.email(),
            is_verified: answered.email_verified(),
            user_name: answered.preferred_username(),
            groups: answered.additional_claims().claims.get(groups_claim),
        };
        match said.person(&self.issuer) {
            Some(other) if other.subject == self.subject => Self {
                email: self.email.or(other.email),
                user_name: self.user_name.or(other.user_name),
                groups: self.groups.or(other.groups),
                ..self
            },
            _ => self,
        }
    }

    /// For accounts: what this person is known by, and which name an account of theirs would have.
    pub fn claimed(&self) -> Claimed {
        let known = self.email.as_deref().or(self.user_name.as_deref()).unwrap_or(&self.subject);
        let names = [self.email.as_deref(), self.user_name.as_deref()];
        let name = names.into_iter().flatten().find_map(|name| name.parse::<UserName>().ok());
        Claimed { issuer: self.issuer.clone(), subject: self.subject.clone(), shown: shown(known), name }
    }
}

impl Admission {
    /// Whether more must be known of somebody than this to decide.
    pub fn needs_more(&self, person: &Person) -> bool {
        let is_nameless = person.email.is_none() && person.user_name.is_none();
        is_nameless
            || (!self.domains.is_empty() && person.email.is_none())
            || (!self.groups.is_empty() && person.groups.is_none())
    }

    /// Why somebody may not come in, for that one to read; `None` for who may.
    pub fn refusal(&self, person: &Person, label: &str) -> Option<String> {
        if !self.domains.is_empty() {
            let Some(email) = &person.email else {
                return Some(format!(
                    "Only people with an e-mail address of certain domains may come in, and {label} names no verified one of \
                     yours."
                ));
            };
            let domain = email.rsplit_once('@').map(|(_, domain)| domain.to_lowercase());
            if !domain.is_some_and(|domain| self.domains.contains(&domain)) {
                let email = shown(email);
                return Some(format!(
                    "Only people of certain e-mail domains may come in, and {email} is in none of them."
                ));
            }
        }
        if self.groups.is_empty() {
            return None;
        }
        let is_in_one = person.groups.iter().flatten().any(|group| self.groups.contains(group));
        (!is_in_one).then(|| match person.groups {
            Some(_) => format!("Only members of certain groups may come in, and {label} counts you to none of them."),
            None => format!("Only members of certain groups may come in, and {label} says nothing of your groups."),
        })
    }
}

/// The parts that count, wherever they are said.
struct Said<'a> {
    subject: &'a SubjectIdentifier,
    email: Option<&'a EndUserEmail>,
    is_verified: Option<bool>,
    user_name: Option<&'a EndUserUsername>,
    groups: Option<&'a Value>,
}

impl Said<'_> {
    fn person(&self, issuer: &str) -> Option<Person> {
        let subject = self.subject.as_str();
        let is_one = !subject.is_empty() && subject.len() <= LONGEST_SUBJECT && !subject.contains(char::is_control);
        let said = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        is_one.then(|| Person {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            email: self.email.filter(|_| self.is_verified == Some(true)).and_then(|email| said(email.as_str())),
            user_name: self.user_name.and_then(|name| said(name.as_str())),
            groups: self.groups.and_then(groups),
        })
    }
}

/// A list of texts, or one text.
fn groups(said: &Value) -> Option<Vec<String>> {
    match said {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(many) => Some(many.iter().filter_map(|group| group.as_str().map(ToOwned::to_owned)).collect()),
        _ => None,
    }
}

/// Foreign words on one line, not too many, with nothing in them that cannot be seen.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|sign| *sign == ' ' || !visible::is_invisible(*sign)).take(NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(email: Option<&str>, groups: Option<&[&str]>) -> Person {
        Person {
            issuer: "https://id.example.org".into(),
            subject: "7".into(),
            email: email.map(ToOwned::to_owned),
            user_name: None,
            groups: groups.map(|groups| groups.iter().map(|&group| group.to_owned()).collect()),
        }
    }

    #[test]
    fn domains_are_whole_and_addresses_verified() {
        let admission = Admission { domains: vec!["example.org".into()], ..Admission::default() };
        let is_in = |email| admission.refusal(&person(email, None), "Id").is_none();
        assert!(is_in(Some("ada@example.org")) && is_in(Some("Ada@Example.ORG")));
        for other in ["ada@evil-example.org", "ada@example.org.evil.net", "ada@a.example.org", "example.org", "ada@"] {
            assert!(!is_in(Some(other)), "{other}");
        }
        assert!(!is_in(None));
        assert!(admission.needs_more(&person(None, None)) && !admission.needs_more(&person(Some("a@b"), None)));
        assert!(Admission::default().refusal(&person(None, None), "Id").is_none());
    }

    #[test]
    fn one_group_is_enough_and_none_is_not() {
        let admission = Admission { groups: vec!["ml".into(), "ops".into()], ..Admission::default() };
        let refusal = |groups| admission.refusal(&person(None, groups), "Id");
        assert_eq!(refusal(Some(&["x", "ops"])), None);
        assert!(refusal(Some(&["x", "ML"])).unwrap().contains("to none of them"));
        assert!(refusal(Some(&[])).unwrap().contains("to none of them"));
        assert!(refusal(None).unwrap().contains("says nothing"));
        assert_eq!(groups(&serde_json::json!(["a", 1, "b"])), Some(vec!["a".into(), "b".into()]));
        assert_eq!(groups(&serde_json::json!("a")), Some(vec!["a".into()]));
        assert_eq!(groups(&serde_json::json!({ "a": true })), None);
    }

    #[test]
    fn names_for_accounts_are_plain_and_shown_ones_are_seen() {
        let claimed = person(Some("Ada.L@Example.org"), None).claimed();
        assert_eq!(claimed.name.unwrap().as_str(), "ada.l@example.org");
        assert_eq!(claimed.shown, "Ada.L@Example.org");
        let odd = Person { user_name: Some("ada\u{202e}\n<b>".into()), ..person(None, None) }.claimed();
        assert_eq!((odd.name, odd.shown.as_str()), (None, "ada<b>"));
        assert_eq!(person(None, None).claimed().shown, "7");
    }
}
