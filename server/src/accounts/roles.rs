//! What a member is in a project, and what a token is for. What each may do stands in `access::rules`.

use std::fmt;

/// What a member is in a project. Ordered: each may do what the ones before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Uploads, notes, renames, shares, moves.
    Editor,
    /// Deletes, and decides who is a member.
    Admin,
}

impl Role {
    /// Every role, the smallest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Editor, Self::Admin];

    /// As it is stored and sent.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Admin => "admin",
        }
    }

    /// The role of a slug.
    pub fn from_slug(slug: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.slug() == slug)
    }
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Sends live samples, and nothing else.
    Samples,
    /// Makes runs and adds files.
    Upload,
    /// Reads runs and reports.
    Read,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 3] = [Self::Samples, Self::Upload, Self::Read];

    /// As it is stored and sent.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Upload => "upload",
            Self::Read => "read",
        }
    }

    /// The scope of a slug.
    pub fn from_slug(slug: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.slug() == slug)
    }

    /// The role that its maker must have in the project, and the most that the token can be there.
    pub fn role(self) -> Role {
        match self {
            Self::Samples | Self::Upload => Role::Editor,
            Self::Read => Role::Viewer,
        }
    }
}

/// The scopes of a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Each once, in the order of [`Scope::ALL`].
    pub fn new(scopes: &[Scope]) -> Self {
        Self(Scope::ALL.into_iter().filter(|scope| scopes.contains(scope)).collect())
    }

    /// Whether the token is for this.
    pub fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Scope> + '_ {
        self.0.iter().copied()
    }

    /// From slugs separated by spaces. What is not known is left out: it can allow nothing.
    pub fn from_text(text: &str) -> Self {
        let scopes: Vec<Scope> = text.split_whitespace().filter_map(Scope::from_slug).collect();
        Self::new(&scopes)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, scope) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(" ")?;
            }
            f.write_str(scope.slug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_survive_their_slugs() {
        assert!(Role::Viewer < Role::Editor && Role::Editor < Role::Admin);
        assert!(Role::ALL.into_iter().all(|role| Role::from_slug(role.slug()) == Some(role)));
        assert_eq!(Role::from_slug("Admin"), None);
    }

    #[test]
    fn scopes_are_a_set_and_unknown_ones_allow_nothing() {
        let scopes = Scopes::from_text("read everything upload read");
        assert_eq!(scopes.to_string(), "upload read");
        assert!(scopes.has(Scope::Read) && !scopes.has(Scope::Samples));
        assert!(Scopes::from_text("admin").is_empty());
    }
}
