//! The record of what was done: who came in, what was shared, deleted, granted. Rows are added, never changed.

use super::Accounts;
use crate::store::{DbRow, StoreError, new_id, now};
use rankscope_model::UnixMicros;
use sqlx::Row;
use std::net::IpAddr;

/// Longest text of a subject that is kept, in characters.
const MAX_SUBJECT: usize = 200;

macro_rules! actions {
    ($($variant:ident $slug:literal $words:literal;)*) => {
        /// What is recorded.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action {
            $(#[doc = $words] $variant,)*
        }

        impl Action {
            /// Every action.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As it is stored.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// For people.
            pub fn words(self) -> &'static str {
                match self { $(Self::$variant => $words,)* }
            }
        }
    };
}

actions! {
    SignedIn "signed-in" "Signed in";
    SignInFailed "sign-in-failed" "Sign-in failed";
    SignedOut "signed-out" "Signed out";
    IdentityLinked "identity-linked" "Let an identity open an account";
    IdentityRemoved "identity-removed" "Forgot an identity";
    PasswordSet "password-set" "Set a password";
    FirstAdminMade "first-admin-made" "Became the first administrator";
    UserAdded "user-added" "Added a user";
    UserLinkMade "user-link-made" "Made a set-up link";
    UserDisabled "user-disabled" "Disabled a user";
    UserEnabled "user-enabled" "Let a user back in";
    AdminGranted "admin-granted" "Made an administrator";
    AdminTaken "admin-taken" "Ended an administrator's rights";
    ProjectAdded "project-added" "Added a project";
    ProjectRenamed "project-renamed" "Renamed a project";
    ProjectRemoved "project-removed" "Removed a project";
    MemberSet "member-set" "Set a member's role";
    MemberRemoved "member-removed" "Removed a member";
    TokenMade "token-made" "Made a token";
    TokenRevoked "token-revoked" "Revoked a token";
    ShareMade "share-made" "Shared a report";
    ShareRevoked "share-revoked" "Revoked a share";
    RunDeleted "run-deleted" "Deleted a run";
    RunExpired "run-expired" "Deleted a run past the limits of its project";
    RunReadAgain "run-read-again" "Had the files of a run read again";
    RetentionSet "retention-set" "Set how long runs are kept";
    NodeRemoved "node-removed" "Removed a node";
    RunMoved "run-moved" "Moved a run";
}

/// A line of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub created_at: UnixMicros,
    /// Who, as the name was then; a token is named behind its owner.
    pub user_name: String,
    /// What; the slug if this version does not know it.
    pub action: String,
    /// To what.
    pub subject: String,
    /// From where.
    pub address: String,
}

impl Accounts {
    /// Records what was done. That it was done is not undone if this fails, but the log says so.
    pub async fn record(&self, user_name: &str, action: Action, subject: &str, address: Option<IpAddr>) {
        let subject: String = subject.chars().filter(|sign| !sign.is_control()).take(MAX_SUBJECT).collect();
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        tracing::info!(target: "rankscope::audit", user_name, action = action.slug(), subject, address, "recorded");
        let recorded = sqlx::query(
            "INSERT INTO audit (id, created_at, user_name, action, subject, address) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(new_id())
        .bind(now().0)
        .bind(user_name)
        .bind(action.slug())
        .bind(&subject)
        .bind(address)
        .execute(&self.pool)
        .await;
        if let Err(error) = recorded {
            tracing::error!(%error, user_name, action = action.slug(), subject, "could not be recorded");
        }
    }

    /// The newest lines of the record.
    pub async fn audit(&self, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let rows = sqlx::query(
            "SELECT created_at, user_name, action, subject, address FROM audit ORDER BY created_at DESC, id DESC LIMIT $1",
        )
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        let entry = |row: &DbRow| {
            let slug: String = row.try_get("action")?;
            let known = Action::ALL.iter().find(|action| action.slug() == slug);
            Ok(AuditEntry {
                created_at: UnixMicros(row.try_get("created_at")?),
                user_name: row.try_get("user_name")?,
                action: known.map_or(slug, |action| action.words().to_owned()),
                subject: row.try_get("subject")?,
                address: row.try_get("address")?,
            })
        };
        rows.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::users::tests::accounts;

    #[tokio::test]
    async fn the_record_is_newest_first_and_bounded() {
        let (_folder, accounts) = accounts().await;
        accounts.record("ada", Action::SignedIn, "", Some([10, 0, 0, 1].into())).await;
        accounts.record("ada", Action::ShareMade, &"x".repeat(1000), None).await;
        let entries = accounts.audit(10).await.unwrap();
        assert_eq!(entries[0].action, "Shared a report");
        assert_eq!(entries[0].subject.len(), MAX_SUBJECT);
        assert_eq!((entries[1].user_name.as_str(), entries[1].address.as_str()), ("ada", "10.0.0.1"));
        assert_eq!(accounts.audit(1).await.unwrap().len(), 1);
    }
}
