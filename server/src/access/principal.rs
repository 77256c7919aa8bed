//! Who asks, as far as it is known, and what that means for a project.

use super::Client;
use crate::{
    accounts::{DEFAULT_PROJECT, Membership, Role, TokenHolder, User},
    errors::{Problem, ProblemKind, Result},
    store::Sees,
};
use axum::{
    extract::FromRequestParts,
    http::{Extensions, request::Parts},
};
use std::{convert::Infallible, net::IpAddr, sync::Arc};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// There are no accounts, and this server is its owner's alone: everything is allowed.
    SingleUser,
    /// Nobody that is known.
    Nobody,
    /// A person.
    User(Arc<SignedIn>),
    /// A program.
    Token(Arc<TokenHolder>),
}

/// A person who has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// The account.
    pub user: User,
    /// Its projects; for an administrator all of them.
    pub memberships: Vec<Membership>,
    /// How the account is known.
    pub via: Via,
}

/// How somebody is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// By the cookie of a session.
    Session,
    /// By the word of a trusted proxy.
    Proxy,
}

impl Principal {
    /// What this one is in a project.
    pub fn role_in(&self, project: &str) -> Option<Role> {
        match self {
            Self::SingleUser => Some(Role::Admin),
            Self::User(signed_in) => {
                signed_in.memberships.iter().find(|member| member.project == project).map(|member| member.role)
            }
            Self::Token(holder) if holder.project == project => {
                let most = holder.scopes.iter().map(crate::accounts::Scope::role).max()?;
                Some(most.min(holder.role))
            }
            Self::Nobody | Self::Token(_) => None,
        }
    }

    /// Whether this one is at least `role` somewhere.
    pub fn has_anywhere(&self, role: Role) -> bool {
        match self {
            Self::SingleUser => true,
            Self::Nobody => false,
            Self::User(signed_in) => {
                signed_in.user.is_admin || signed_in.memberships.iter().any(|member| member.role >= role)
            }
            Self::Token(holder) => self.role_in(&holder.project).is_some_and(|found| found >= role),
        }
    }

    /// Whether this one may do everything.
    pub fn is_administrator(&self) -> bool {
        match self {
            Self::SingleUser => true,
            Self::User(signed_in) => signed_in.user.is_admin,
            Self::Nobody | Self::Token(_) => false,
        }
    }

    /// Whose runs this one sees in a list.
    pub fn sees(&self) -> Sees {
        match self {
            Self::SingleUser => Sees::All,
            Self::Nobody => Sees::Projects(Vec::new()),
            Self::User(signed_in) if signed_in.user.is_admin => Sees::All,
            Self::User(signed_in) => {
                Sees::Projects(signed_in.memberships.iter().map(|member| member.project.clone()).collect())
            }
            Self::Token(holder) => Sees::Projects(vec![holder.project.clone()]),
        }
    }

    /// The project of a new run: the chosen one, if this one is an editor there; without a choice the token's own, the
    /// default one, or the first in which this one is an editor.
    pub fn project_for_upload(&self, chosen: Option<&str>) -> Result<String> {
        let may = |project: &str| self.role_in(project).is_some_and(|role| role >= Role::Editor);
        if let Some(chosen) = chosen {
            // One that is not there and one that is somebody else's are the same from here.
            let none = || Problem::invalid("There is no such project in which you may add runs.");
            return may(chosen).then(|| chosen.to_owned()).ok_or_else(none);
        }
        let own = match self {
            Self::SingleUser => Some(DEFAULT_PROJECT),
            Self::Nobody => None,
            Self::Token(holder) => Some(holder.project.as_str()),
            Self::User(_) if may(DEFAULT_PROJECT) => Some(DEFAULT_PROJECT),
            Self::User(signed_in) => {
                let mut editable = signed_in.memberships.iter().filter(|member| member.role >= Role::Editor);
                editable.next().map(|member| member.project.as_str())
            }
        };
        own.filter(|project| may(project)).map(ToOwned::to_owned).ok_or_else(|| {
            Problem::new(ProblemKind::NotAllowed, "You may add runs to no project. Ask an administrator of one.")
        })
    }

    /// To whom uploads on their way belong: the same for nobody else.
    pub fn owner(&self) -> String {
        match self {
            Self::SingleUser | Self::Nobody => String::new(),
            Self::User(signed_in) => format!("user:{}", signed_in.user.id),
            Self::Token(holder) => format!("token:{}", holder.id),
        }
    }

    /// The name under which the record knows this one; `None` where nobody has to answer for anything.
    pub fn recorded_name(&self) -> Option<String> {
        match self {
            Self::SingleUser => None,
            Self::Nobody => Some(String::new()),
            Self::User(signed_in) => Some(signed_in.user.name.clone()),
            Self::Token(holder) => Some(format!("{}, token {}", holder.user_name, holder.name)),
        }
    }
}

/// Who asks and from where, for handlers. Nobody, if the gate has not said who.
#[derive(Debug, Clone)]
pub struct Who {
    /// Who.
    pub principal: Principal,
    /// From where.
    pub from: Option<IpAddr>,
}

impl Who {
    /// What the gate has left in a request.
    pub fn of(extensions: &Extensions) -> Self {
        Self {
            principal: extensions.get::<Principal>().cloned().unwrap_or(Principal::Nobody),
            from: extensions.get::<Client>().map(|Client(address)| *address),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{Scope, Scopes};
    use rankscope_model::UnixMicros;

    fn user(is_admin: bool, memberships: &[(&str, Role)]) -> Principal {
        let user = User {
            id: "u".into(),
            name: "ada".into(),
            is_admin,
            has_password: true,
            created_at: UnixMicros(0),
            disabled_at: None,
        };
        let memberships = memberships
            .iter()
            .map(|(project, role)| Membership { project: (*project).into(), name: (*project).into(), role: *role })
            .collect();
        Principal::User(Arc::new(SignedIn { user, memberships, via: Via::Session }))
    }

    fn token(scopes: &[Scope], role: Role) -> Principal {
        Principal::Token(Arc::new(TokenHolder {
            id: "t".into(),
            name: "node 7".into(),
            user_name: "ada".into(),
            project: "p".into(),
            scopes: Scopes::new(scopes),
            role,
        }))
    }

    #[test]
    fn a_token_is_never_more_than_its_scopes_or_its_owner() {
        assert_eq!(token(&[Scope::Read], Role::Admin).role_in("p"), Some(Role::Viewer));
        assert_eq!(token(&[Scope::Upload], Role::Admin).role_in("p"), Some(Role::Editor));
        assert_eq!(token(&[Scope::Upload], Role::Viewer).role_in("p"), Some(Role::Viewer));
        assert_eq!(token(&[Scope::Upload], Role::Admin).role_in("default"), None);
        assert_eq!(token(&[], Role::Admin).role_in("p"), None);
        assert!(!token(&Scope::ALL, Role::Admin).is_administrator());
    }

    #[test]
    fn runs_go_where_their_maker_is_an_editor() {
        let place = |who: &Principal, chosen| who.project_for_upload(chosen).ok();
        let member = user(false, &[("a", Role::Viewer), ("b", Role::Editor), ("default", Role::Viewer)]);
        assert_eq!(place(&member, None).as_deref(), Some("b"));
        assert_eq!(place(&member, Some("b")).as_deref(), Some("b"));
        for elsewhere in ["a", "default", "nowhere", ""] {
            assert_eq!(place(&member, Some(elsewhere)), None);
        }
        assert_eq!(place(&user(false, &[("a", Role::Viewer)]), None), None);
        assert_eq!(place(&Principal::Nobody, None), None);
        assert_eq!(place(&Principal::SingleUser, None).as_deref(), Some("default"));
        assert_eq!(place(&token(&[Scope::Upload], Role::Editor), None).as_deref(), Some("p"));
        assert_eq!(place(&token(&[Scope::Upload], Role::Editor), Some("default")), None);
    }

    #[test]
    fn lists_hold_what_members_see() {
        assert_eq!(user(true, &[]).sees(), Sees::All);
        assert_eq!(user(false, &[("a", Role::Viewer)]).sees(), Sees::Projects(vec!["a".into()]));
        assert_eq!(Principal::Nobody.sees(), Sees::Projects(vec![]));
    }
}
